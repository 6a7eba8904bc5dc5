"""The patterns of what is redacted, and of what only resembles it, as RE2 syntax: data, in the order of the passes.

RE2 has no lookaround. A text that must be kept is therefore matched as a whole, by a group of its own, before anything
inside it can match: `Chrome/113.0.0.0` is one match, and no address is searched for in it. A prefix that identifies a
value is a group too, and is kept. All patterns ignore case and match the same on each engine.
"""

from enum import StrEnum
from typing import Final

import msgspec

from cordwood.model.redaction import Detector


class MatchKind(StrEnum):
    """The kind of values that a pass matches."""

    OTHER = "plain"
    MAIL = "mail"
    ADDRESS = "address"
    CARD = "card"


class Pass(msgspec.Struct, frozen=True):
    """A pass over a text. Matches of `kept_groups` are kept, and `prefix_groups` precede the value.

    The rest of a match is the value. Passes of one `stage` are alternatives of one pattern, of which the first that
    matches wins. `hint` matches every text in which the pass matches, and is faster.
    """

    stage: int
    name: str
    detector: Detector | None
    hint: str
    pattern: str
    kept_groups: tuple[int, ...] = ()
    prefix_groups: tuple[int, ...] = ()
    match_kind: MatchKind = MatchKind.OTHER


# Whitespace, also as escaped in JSON and in URLs.
_SPACE: Final = r"(?:\s|\\+[nrt]|%20|\+)"
# Escapes of JSON and of URLs end in letters and digits that are not part of the next word: `\n10.0.0.1`, `%3D10.0.0.1`.
_ESCAPE: Final = r"(?:\\+(?:[nrtbf]|u[0-9a-f]{4}|x[0-9a-f][0-9a-f])|%(?:25)*[0-9a-f][0-9a-f])"
_START: Final = rf"{_ESCAPE}|_|\b"
_END: Final = r"(?:\b|_|[a-z])"

# An escaped letter, digit, dot, colon or @, which no encoder escapes: the writer wanted to conceal it.
_NEEDLESS_ESCAPE: Final = r"\\+u00(?:2[de]|3[0-9a]|4[0-9a-f]|5[0-9acf]|6[1-9a-f]|7[0-9a])"
_WORD_CHARACTERS: Final = r"[a-z0-9_.:@%+-]*"

_OCTET: Final = r"0*(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS4: Final = rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}"
_FOUR_PARTS: Final = r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+"
# A percent-encoded digit or dot, which needs no encoding in a URL.
_DIGIT: Final = r"(?:[0-9]|%(?:25)*3[0-9])"
_DOT: Final = r"(?:\.|%(?:25)*2e)"
_PERCENT4: Final = rf"[0-9.]*(?:%(?:25)*3[0-9]{_DIGIT}*|%(?:25)*2e{_DIGIT}+)(?:{_DOT}{_DIGIT}+)+"

# Words before an address, or before a slash and an address, that are not the name of a product.
_WORDS_BEFORE_ADDRESS: Final = (
    "(?:ip|ipv4|addr|address|hosts?|from|to|src|dst|source|dest|clients?|peer|tcp|udp|inet|inside|outside|remote"
    "|local|servers?|proxy|gateway|network|subnet|node|upstream|backend|origin|users?|route|block|lookup|via|by|at|on)"
)
_OPENING: Final = r"(?:^|[\s\"'(;,|\[=])"
_PRODUCT: Final = rf"(?:{_OPENING}|{_ESCAPE})[a-z][a-z0-9_+-]*/v?{_FOUR_PARTS}"
_VERSION: Final = rf"\b(?:v|ver|version|release|rev|build)[ ._=:-]?{_FOUR_PARTS}"
_FIVE_PARTS: Final = rf"(?:{_START})[0-9]+(?:\.[0-9]+){{4,}}"

_GROUP: Final = "[0-9a-f]+"
_COLON: Final = r"(?::|%(?:25)*3a)"
_ZONE: Final = r"(?:%(?:25)?[a-z][0-9a-z._-]*)?"
_TAIL6: Final = rf"(?:{_FOUR_PARTS}|{_GROUP})"
# At least two groups beside the `::`, or all eight, or an IPv4 address at the end.
_LONG6: Final = (
    rf"{_GROUP}{_COLON}(?:{_GROUP}{_COLON})+{_COLON}(?:{_GROUP}{_COLON})*{_TAIL6}{_ZONE}"
    rf"|{_GROUP}{_COLON}{_COLON}(?:{_GROUP}{_COLON})+{_TAIL6}{_ZONE}"
    rf"|(?:{_GROUP}{_COLON}){{6}}(?:{_FOUR_PARTS}|{_GROUP}{_COLON}{_GROUP}){_ZONE}"
    rf"|{_GROUP}{_COLON}{_COLON}(?:{_GROUP}{_COLON})*{_FOUR_PARTS}"
)
# `a::b` and `a::` may also be code; an address has a digit or a known prefix, and ends with its last group.
_FULL_GROUP: Final = (
    "(?:[0-9][0-9a-f]{3}|[0-9a-f][0-9][0-9a-f]{2}|[0-9a-f]{2}[0-9][0-9a-f]|[0-9a-f]{3}[0-9]|f[cd][a-f]{2}|fe[ab][a-f])"
)
_SHORT6: Final = (
    rf"{_GROUP}{_COLON}{_COLON}{_GROUP}{_ZONE}(?:\b|_)"
    rf"|(?:{_GROUP}(?:{_COLON}{_GROUP})+|{_FULL_GROUP}){_COLON}{_COLON}(?:\B|_|%)"
)
_LEADING6: Final = rf"{_COLON}{_COLON}(?:(?:{_GROUP}{_COLON})+{_TAIL6}|{_FOUR_PARTS}){_ZONE}"
_LOOPBACK6: Final = rf"{_COLON}{_COLON}{_GROUP}{_ZONE}(?:\b|_)"
_WORD_GROUP: Final = "(?:[a-e][a-f]*|f[a-f]?[a-f]?|f[abf][a-f]+|fe[c-f][a-f]+)"
_CODE: Final = rf"\b{_WORD_GROUP}::{_WORD_GROUP}\b|\B::[a-f]+\b"
_HARDWARE: Final = r"\b[0-9a-f][0-9a-f](?::[0-9a-f][0-9a-f]){5,}\b"

_CREDENTIAL_WORD: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|api[_-]?key|(?:access|refresh|auth|id|session)[_-]?token"
    r"|(?:private|secret|access)[_-]?key|authorization|credentials?|amz-signature)"
)
# The endings of these words, which suffice for a hint and compile to a smaller pattern.
_CREDENTIAL_ENDING: Final = "(?:passw(?:or)?d|phrase|pwd|secret|key|token|authorization|credentials?|signature)"
_ASSIGN: Final = rf"{_SPACE}*(?:=>?|:|%(?:25)*3[ad]){_SPACE}*"
_SCHEME: Final = (
    rf"(?:(?:bearer|basic|token|digest|api-?key|negotiate|ntlm|hawk|hmac|aws4-hmac-sha256|signature){_SPACE}+)?"
)
_UNQUOTED: Final = r"[^\s\"'&,;<>()\[\]{}\\|]+"
# Words that follow "bearer" and "basic" in prose.
_PROSE: Final = (
    rf"\b(?:bearer|basic){_SPACE}+(?:auth[a-z]*|tokens?|realm|scheme|header|error|is|was|and|or|for|of|not|missing"
    r"|required|invalid|format|must|from|with|type|plan|tier)\b"
)
# Keys of known issuers; a minimum length is given if the prefix also begins words: `Asia/Kolkata`, `hf_transfer`,
# `sg.example.com`.
_KNOWN_KEY: Final = (
    r"(?:(?:sb_secret_|sb_publishable_|sbp_|[spr]k_live_|[spr]k_test_|whsec_|gh[opsur]_|github_pat_|glpat-"
    r"|xox[abeoprs]-|ya29\.|dop_v1_|shpat_)[a-z0-9_./+=-]{7,}[a-z0-9_/+=-]"
    r"|(?:sk-|pypi-)[a-z0-9_-]{16,}|(?:npm_|hf_)[a-z0-9]{20,}|aiza[a-z0-9_-]{24,}|(?-i:(?:AKIA|ASIA)[A-Z0-9]{16})"
    r"|sg\.[a-z0-9_-]{16,}\.[a-z0-9_-]{16,})"
)

# The same prefixes without the lengths.
_KNOWN_KEY_HINTS: Final = (
    r"sb_secret_|sb_publ|sbp_|sk-|[spr]k_live_|[spr]k_test_|whsec_|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-"
    r"|(?-i:AKIA|ASIA)|aiza|ya29\.|npm_|pypi-|hf_|\bsg\.|dop_v1_|shpat_"
)

# RE2 and Python agree on ASCII classes only; all characters outside of ASCII count as letters of a name.
_LETTER: Final = "a-z0-9\u0080-\U0010ffff"
_LOCAL_PART: Final = rf"(?:[{_LETTER}._+~-]|%(?:25)*(?:2[bde]|5f))+"
# A domain ends with a name: after a numeric last label it is a host's address, and the part before @ is a user.
_LAST_LABEL: Final = "[a-z\u0080-\U0010ffff]"
# `o'brien@…`, and a quoted local part, in characters that JSON does not put around its own commas and colons.
_QUOTED_PART: Final = r"\\*\"[a-z0-9 ._+-]+\\*\""
_MAIL: Final = rf"(?:{_LOCAL_PART}(?:'{_LOCAL_PART})?|{_QUOTED_PART})(?:@|%(?:25)*40)[{_LETTER}-]+(?:{_DOT}[{_LETTER}-]+)*{_DOT}{_LAST_LABEL}[{_LETTER}-]*"

_CARD_SEPARATOR: Final = r"(?:[ +-]|%20)"
# Card numbers begin with 2 to 6; numbers with 1 may be times in microseconds. Only some issuers have a fifth group:
# after others, such a group is the expiry month or the security code.
_CARD: Final = (
    rf"[2-6][0-9]{{12,18}}|(?:5[06-8]|6[1-36-9])[0-9]{{2}}(?:{_CARD_SEPARATOR}[0-9]{{4}}){{3}}{_CARD_SEPARATOR}[0-9]{{1,3}}"
    rf"|[2-6][0-9]{{3}}{_CARD_SEPARATOR}[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{1,4}}"
    rf"|3[0-9]{{3}}{_CARD_SEPARATOR}[0-9]{{6}}{_CARD_SEPARATOR}[0-9]{{4,5}}"
)
_NOT_A_CARD: Final = (
    r"[0-9]+\.[0-9]{13,}|\"\s*:\s*-?[0-9]{13,}|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)

PASSES: Final[tuple[Pass, ...]] = (
    Pass(0, "needless escapes", None, r"\\u00[2-7]", rf"{_WORD_CHARACTERS}(?:{_NEEDLESS_ESCAPE}{_WORD_CHARACTERS})+"),
    Pass(
        0,
        "private keys",
        Detector.SECRET,
        r"private key-----",
        r"-----BEGIN [a-z ]*PRIVATE KEY-----[a-z0-9+/=\s\\:,.-]*",
    ),
    Pass(
        1,
        "cards",
        Detector.CARD,
        rf"[0-9]{{13}}|[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{4}}",
        rf"({_NOT_A_CARD})|({_START})({_CARD})\b",
        kept_groups=(1,),
        prefix_groups=(2,),
        match_kind=MatchKind.CARD,
    ),
    Pass(
        2,
        "named secrets",
        Detector.SECRET,
        rf"{_CREDENTIAL_ENDING}{_SPACE}*[=:\\\"'%]",
        rf"({_CREDENTIAL_WORD})(?:(\"\s*:\s*\[\s*\")[^\"\\](?:[^\"\\]|\\.|\"\s*,\s*\")*"
        rf"|(\\+\"\s*:\s*\[\s*\\+\")(?:[^\"\\]|\\+[^\"\\]|\\+\"\s*,\s*\\+\")+"
        rf"|((?:\"\s*:\s*|{_ASSIGN})\")[^\"\\,:}}\]\s](?:[^\"\\]|\\.)*"
        rf"|((?:\\\"\s*:\s*|{_ASSIGN})\\\")(?:[^\"\\,:}}\]\s]|\\\\(?:\\[\"\\]|[^\"\\]))(?:[^\"\\]|\\\\(?:\\[\"\\]|[^\"\\]))*"
        rf"|(\\*'?{_ASSIGN}\\*')[^'\"\\]+|((?:\\+\"{_ASSIGN}\\+\"|{_ASSIGN}(?:\\+\")?){_SCHEME}){_UNQUOTED})"
        rf"|(token(?:=|%(?:25)*3d)){_UNQUOTED}",
        prefix_groups=(1, 2, 3, 4, 5, 6, 7, 8),
    ),
    Pass(
        3,
        "bearers",
        Detector.TOKEN,
        r"bearer|basic",
        rf"({_PROSE})|(bearer{_SPACE}+|bearer:{_SPACE}*)[a-z0-9._~+/=-]{{3,}}"
        rf"|(\bbasic{_SPACE}+)(?:[a-z0-9._~+/=-]{{6,}}|[a-z0-9._~+/=-]+=)",
        kept_groups=(1,),
        prefix_groups=(2, 3),
    ),
    Pass(
        3,
        "web tokens",
        Detector.TOKEN,
        r"eyj",
        rf"({_START})eyj[a-z0-9_-]{{8,}}(?:\.[a-z0-9_-]*)*",
        prefix_groups=(1,),
    ),
    Pass(
        3,
        "known keys",
        Detector.SECRET,
        _KNOWN_KEY_HINTS,
        rf"({_START}){_KNOWN_KEY}",
        prefix_groups=(1,),
    ),
    Pass(
        3,
        "URLs that log in",
        Detector.SECRET,
        r"://[^\s/@\"'\\]*:[^\s/@\"'\\]*@",
        r"(://)[^\s/@\"'\\]*:[^\s/@\"'\\]*@[^\s/\"'\\:]+",
        prefix_groups=(1,),
    ),
    Pass(
        4,
        "mail addresses",
        Detector.EMAIL,
        r"@|%(?:25)*40",
        rf"({_ESCAPE}?){_MAIL}",
        prefix_groups=(1,),
        match_kind=MatchKind.MAIL,
    ),
    Pass(
        5,
        "v6 addresses",
        Detector.IP,
        r"::|%(?:25)*3a|(?:[0-9a-f]+:){6}",
        rf"({_HARDWARE})|({_START})(?:{_LONG6})|(\B|_|{_ESCAPE}){_LEADING6}"
        rf"|({_CODE})|({_START})(?:{_SHORT6})|(\B|_|{_ESCAPE}){_LOOPBACK6}",
        kept_groups=(1, 4),
        prefix_groups=(2, 3, 5, 6),
        match_kind=MatchKind.ADDRESS,
    ),
    Pass(
        6,
        "v4 addresses",
        Detector.IP,
        r"[0-9]\.[0-9]+\.[0-9]|%(?:25)*(?:2e|3[0-9])",
        rf"({_FIVE_PARTS})|{_PERCENT4}|((?:{_OPENING}?\b{_WORDS_BEFORE_ADDRESS}/?)|{_START}){_ADDRESS4}{_END}"
        rf"|({_PRODUCT}|{_VERSION})",
        kept_groups=(1, 3),
        prefix_groups=(2,),
        match_kind=MatchKind.ADDRESS,
    ),
    Pass(
        7,
        "phones",
        Detector.PHONE,
        r"(?:\+|%(?:25)*2b|\\+u002b)[1-9]",
        r"((?:^|[^0-9a-z])\+|%(?:25)*2b|\\+u002b)[1-9](?:[ ().-]?[ ().-]?[0-9]){6,14}\b",
        prefix_groups=(1,),
    ),
)

# A field of this name holds a secret, whatever its value.
SECRET_NAME: Final = rf"(?is)^.*{_CREDENTIAL_WORD}$"
