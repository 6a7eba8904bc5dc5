"""Detection of private texts: the patterns of redaction in the order of their passes, and the hiding of field names.

RE2 has no lookaround. A text that must be kept is therefore matched as a whole, by a group of its own, before a part of
it can match. For example, `Chrome/113.0.0.0` is one match, and no address is searched for in it. A prefix that
identifies a value is a group, too, and is kept. The built-in patterns ignore case, and match the same texts on each
engine.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import Final

import msgspec

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.model.event import MAX_LISTED_PATH_CHARACTERS, EventPath, EventShape, ValueKind, ValueKindsByPath
from cordwood.model.redaction import Detector, RedactionRules, RedactMode
from cordwood.sql.budget import check_cpu_time


class MatchKind(StrEnum):
    """The kind of private values that a detection pass finds, which determines how they are replaced."""

    OTHER = "plain"
    EMAIL_ADDRESS = "mail"
    IP_ADDRESS = "address"
    CARD_NUMBER = "card"


class DetectionPass(msgspec.Struct, frozen=True):
    """A search of a text for one kind of value that must be redacted.

    A text that one of the `kept_groups` of `pattern` matches is not redacted. A text that one of the `prefix_groups`
    matches is kept before the value; the rest of the match is the value. The passes of one `stage_number` become
    alternatives of one pattern, and the first alternative that matches is used. `prefilter_pattern` is a faster pattern
    that matches every text in which `pattern` has a match. `occurrence_pattern` matches the same texts as `pattern`,
    but only a part of each value, if Python's `re` module would take very long to find the value's beginning.
    """

    stage_number: int
    name: str
    detector: Detector | None
    prefilter_pattern: str
    pattern: str
    kept_groups: tuple[int, ...] = ()
    prefix_groups: tuple[int, ...] = ()
    match_kind: MatchKind = MatchKind.OTHER
    occurrence_pattern: str | None = None


# Whitespace, also in its escaped forms in JSON and in URLs.
_WHITESPACE: Final = r"(?:\s|\\+[nrt]|%20|\+)"
# Escapes of JSON and of URLs. An escape ends in letters or digits, which do not belong to the word after it:
# `\n10.0.0.1`, `%3D10.0.0.1`. Backslashes before the last one need not match, because a prefix is kept anyway; if they
# matched, Python would read a row of backslashes once for each of them.
_ESCAPE_SEQUENCE: Final = r"(?:\\(?:[nrtbf]|u[0-9a-f]{4}|x[0-9a-f][0-9a-f])|%(?:25)*[0-9a-f][0-9a-f])"
_WORD_START: Final = rf"{_ESCAPE_SEQUENCE}|_|\b"
_WORD_END: Final = r"(?:\b|_|[a-z])"

# An escaped letter, digit, dot, colon or @. No encoder escapes these characters, so the escape probably serves to
# conceal the value.
_UNNECESSARY_UNICODE_ESCAPE_END: Final = r"\\u00(?:2[de]|3[0-9a]|4[0-9a-f]|5[0-9acf]|6[1-9a-f]|7[0-9a])"
_UNNECESSARY_UNICODE_ESCAPE: Final = rf"\\*{_UNNECESSARY_UNICODE_ESCAPE_END}"
_WORD_CHARACTERS: Final = r"[a-z0-9_.:@%+-]*"

_IPV4_OCTET: Final = r"0*(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4_ADDRESS: Final = rf"{_IPV4_OCTET}\.{_IPV4_OCTET}\.{_IPV4_OCTET}\.{_IPV4_OCTET}"
_FOUR_DOTTED_NUMBERS: Final = r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+"
# A digit or a dot, plain or percent-encoded, although neither needs encoding in a URL.
_ENCODED_DIGIT: Final = r"(?:[0-9]|%(?:25)*3[0-9])"
_ENCODED_DOT: Final = r"(?:\.|%(?:25)*2e)"
_ENCODED_IPV4_ADDRESS: Final = (
    rf"[0-9.]*(?:%(?:25)*3[0-9]{_ENCODED_DIGIT}*|%(?:25)*2e{_ENCODED_DIGIT}+)(?:{_ENCODED_DOT}{_ENCODED_DIGIT}+)+"
)

# After one of these words, or after the word and a slash, a number such as 1.2.3.4 is an IP address. After other words
# with a slash, it is the version of a product.
_WORDS_BEFORE_ADDRESS: Final = (
    "(?:ip|ipv4|addr|address|hosts?|from|to|src|dst|source|dest|clients?|peer|tcp|udp|inet|inside|outside|remote"
    "|local|servers?|proxy|gateway|network|subnet|node|upstream|backend|origin|users?|route|block|lookup|via|by|at|on)"
)
_PRODUCT_NAME_LEFT_BOUNDARY: Final = r"(?:^|[\s\"'(;,|\[=])"
_PRODUCT_NAME: Final = (
    rf"(?:{_PRODUCT_NAME_LEFT_BOUNDARY}|{_ESCAPE_SEQUENCE})[a-z][a-z0-9_+-]*/v?{_FOUR_DOTTED_NUMBERS}"
)
_PRODUCT_VERSION: Final = rf"\b(?:v|ver|version|release|rev|build)[ ._=:-]?{_FOUR_DOTTED_NUMBERS}"
_FIVE_OR_MORE_DOTTED_NUMBERS: Final = rf"(?:{_WORD_START})[0-9]+(?:\.[0-9]+){{4,}}"

_IPV6_GROUP: Final = "[0-9a-f]+"
_IPV6_COLON: Final = r"(?::|%(?:25)*3a)"
_IPV6_ZONE: Final = r"(?:%(?:25)?[a-z][0-9a-z._-]*)?"
_IPV6_IPV4_TAIL: Final = rf"(?:{_FOUR_DOTTED_NUMBERS}|{_IPV6_GROUP})"
# An IPv6 address with at least two groups besides the `::`, with all eight groups, or with an IPv4 address at the end.
_UNCOMPRESSED_IPV6_ADDRESS: Final = (
    rf"{_IPV6_GROUP}{_IPV6_COLON}(?:{_IPV6_GROUP}{_IPV6_COLON})+{_IPV6_COLON}(?:{_IPV6_GROUP}{_IPV6_COLON})*{_IPV6_IPV4_TAIL}{_IPV6_ZONE}"
    rf"|{_IPV6_GROUP}{_IPV6_COLON}{_IPV6_COLON}(?:{_IPV6_GROUP}{_IPV6_COLON})+{_IPV6_IPV4_TAIL}{_IPV6_ZONE}"
    rf"|(?:{_IPV6_GROUP}{_IPV6_COLON}){{6}}(?:{_FOUR_DOTTED_NUMBERS}|{_IPV6_GROUP}{_IPV6_COLON}{_IPV6_GROUP}){_IPV6_ZONE}"
    rf"|{_IPV6_GROUP}{_IPV6_COLON}{_IPV6_COLON}(?:{_IPV6_GROUP}{_IPV6_COLON})*{_FOUR_DOTTED_NUMBERS}"
)
# `a::b` and `a::` may also be code. A text `a::` is an address only if it has several groups, or if its only group has
# four characters with a digit or with a prefix of local addresses (`fc`, `fd`, `fea`, `feb`).
_IPV6_GROUP_WITH_DIGIT: Final = (
    "(?:[0-9][0-9a-f]{3}|[0-9a-f][0-9][0-9a-f]{2}|[0-9a-f]{2}[0-9][0-9a-f]|[0-9a-f]{3}[0-9]|f[cd][a-f]{2}|fe[ab][a-f])"
)
_COMPRESSED_IPV6_ADDRESS: Final = (
    rf"{_IPV6_GROUP}{_IPV6_COLON}{_IPV6_COLON}{_IPV6_GROUP}{_IPV6_ZONE}(?:\b|_)"
    rf"|(?:{_IPV6_GROUP}(?:{_IPV6_COLON}{_IPV6_GROUP})+|{_IPV6_GROUP_WITH_DIGIT}){_IPV6_COLON}{_IPV6_COLON}(?:\B|_|%)"
)
_IPV6_ADDRESS_STARTING_WITH_COLONS: Final = rf"{_IPV6_COLON}{_IPV6_COLON}(?:(?:{_IPV6_GROUP}{_IPV6_COLON})+{_IPV6_IPV4_TAIL}|{_FOUR_DOTTED_NUMBERS}){_IPV6_ZONE}"
_LOOPBACK_IPV6: Final = rf"{_IPV6_COLON}{_IPV6_COLON}{_IPV6_GROUP}{_IPV6_ZONE}(?:\b|_)"
# Groups of letters that do not begin with a prefix of local addresses. Two such groups, as in `a::b`, are kept, because
# they are probably code.
_NON_ADDRESS_IPV6_GROUP: Final = "(?:[a-e][a-f]*|f[a-f]?[a-f]?|f[abf][a-f]+|fe[c-f][a-f]+)"
_CODE_WITH_SCOPE_OPERATOR: Final = rf"\b{_NON_ADDRESS_IPV6_GROUP}::{_NON_ADDRESS_IPV6_GROUP}\b|\B::[a-f]+\b"
_MAC_ADDRESS: Final = r"\b[0-9a-f][0-9a-f](?::[0-9a-f][0-9a-f]){5,}\b"

_CREDENTIAL_WORD: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|api[_-]?key|(?:access|refresh|auth|id|session)[_-]?token"
    r"|(?:private|secret|access)[_-]?key|authorization|credentials?|amz-signature)"
)
# The endings of the words that _CREDENTIAL_WORD matches. A hint may match too much, so it needs only these endings,
# which compile to a smaller pattern.
_CREDENTIAL_WORD_ENDING: Final = "(?:passw(?:or)?d|phrase|pwd|secret|key|token|authorization|credentials?|signature)"
_ASSIGNMENT_SIGN: Final = rf"{_WHITESPACE}*(?:=>?|:|%(?:25)*3[ad]){_WHITESPACE}*"
_AUTHENTICATION_SCHEME: Final = (
    rf"(?:(?:bearer|basic|token|digest|api-?key|negotiate|ntlm|hawk|hmac|aws4-hmac-sha256|signature){_WHITESPACE}+)?"
)
_UNQUOTED_VALUE: Final = r"[^\s\"'&,;<>()\[\]{}\\|]+"
# "bearer" or "basic" with a word that follows it in ordinary prose, so that this word is not taken for a credential.
_SCHEME_WORD_IN_PROSE: Final = (
    rf"\b(?:bearer|basic){_WHITESPACE}+(?:auth[a-z]*|tokens?|realm|scheme|header|error|is|was|and|or|for|of|not|missing"
    r"|required|invalid|format|must|from|with|type|plan|tier)\b"
)
# Keys of known issuers, recognised by their prefix. If other words can begin with the prefix, such as `Asia/Kolkata`,
# `hf_transfer` and `sg.example.com`, the key must have a minimum length.
_PROVIDER_API_KEY: Final = (
    r"(?:(?:sb_secret_|sb_publishable_|sbp_|[spr]k_live_|[spr]k_test_|whsec_|gh[opsur]_|github_pat_|glpat-"
    r"|xox[abeoprs]-|ya29\.|dop_v1_|shpat_)[a-z0-9_./+=-]{7,}[a-z0-9_/+=-]"
    r"|(?:sk-|pypi-)[a-z0-9_-]{16,}|(?:npm_|hf_)[a-z0-9]{20,}|aiza[a-z0-9_-]{24,}|(?-i:(?:AKIA|ASIA)[A-Z0-9]{16})"
    r"|sg\.[a-z0-9_-]{16,}\.[a-z0-9_-]{16,})"
)

# The prefixes of the keys that _PROVIDER_API_KEY matches, without the minimum lengths, for the hint.
_PROVIDER_API_KEY_PREFILTER_PATTERN: Final = (
    r"sb_secret_|sb_publ|sbp_|sk-|[spr]k_live_|[spr]k_test_|whsec_|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-"
    r"|(?-i:AKIA|ASIA)|aiza|ya29\.|npm_|pypi-|hf_|\bsg\.|dop_v1_|shpat_"
)

# RE2 and Python agree on the classes of ASCII characters only. All other characters count as letters of a name.
_MAIL_NAME_CHARACTERS: Final = "a-z0-9\u0080-\U0010ffff"
_MAIL_LOCAL_PART_CHARACTER: Final = rf"(?:[{_MAIL_NAME_CHARACTERS}._+~-]|%(?:25)*(?:2[bde]|5f))"
_MAIL_LOCAL_PART: Final = rf"{_MAIL_LOCAL_PART_CHARACTER}+"
# The last label of a domain begins with a letter. If it is numeric, the text after @ is an IP address, and the text
# before @ is a user.
_LAST_DOMAIN_LABEL_START: Final = "[a-z\u0080-\U0010ffff]"
# A quoted local part. It must not contain `,` or `:`, so that the text between two JSON strings is not mistaken for a
# local part.
_QUOTED_MAIL_LOCAL_PART_END: Final = r"\"[a-z0-9 ._+-]+\\*\""
_QUOTED_MAIL_LOCAL_PART: Final = rf"\\*{_QUOTED_MAIL_LOCAL_PART_END}"
_MAIL_DOMAIN: Final = rf"(?:@|%(?:25)*40)[{_MAIL_NAME_CHARACTERS}-]+(?:{_ENCODED_DOT}[{_MAIL_NAME_CHARACTERS}-]+)*{_ENCODED_DOT}{_LAST_DOMAIN_LABEL_START}[{_MAIL_NAME_CHARACTERS}-]*"
# An unquoted local part may contain one apostrophe: `o'brien@…`.
_MAIL_ADDRESS: Final = rf"(?:{_MAIL_LOCAL_PART}(?:'{_MAIL_LOCAL_PART})?|{_QUOTED_MAIL_LOCAL_PART}){_MAIL_DOMAIN}"

_CARD_SEPARATOR: Final = r"(?:[ +-]|%20)"
# Card numbers begin with 2 to 6; numbers that begin with 1 may be times in microseconds. Only some issuers use a fifth
# group of digits; after cards of other issuers, such a group is the expiry month or the security code.
_CARD_NUMBER: Final = (
    rf"[2-6][0-9]{{12,18}}|(?:5[06-8]|6[1-36-9])[0-9]{{2}}(?:{_CARD_SEPARATOR}[0-9]{{4}}){{3}}{_CARD_SEPARATOR}[0-9]{{1,3}}"
    rf"|[2-6][0-9]{{3}}{_CARD_SEPARATOR}[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{1,4}}"
    rf"|3[0-9]{{3}}{_CARD_SEPARATOR}[0-9]{{6}}{_CARD_SEPARATOR}[0-9]{{4,5}}"
)
# Decimal fractions, numbers after a JSON key, and UUIDs. Card numbers are not searched for in their digits.
_NUMBERS_NOT_SEARCHED_FOR_CARDS: Final = (
    r"[0-9]+\.[0-9]{13,}|\"\s*:\s*-?[0-9]{13,}|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)

_DETECTION_PASSES: Final[tuple[DetectionPass, ...]] = (
    DetectionPass(
        0,
        "needless escapes",
        None,
        r"\\u00[2-7]",
        rf"{_WORD_CHARACTERS}(?:{_UNNECESSARY_UNICODE_ESCAPE}{_WORD_CHARACTERS})+",
        occurrence_pattern=_UNNECESSARY_UNICODE_ESCAPE_END,
    ),
    DetectionPass(
        0,
        "private keys",
        Detector.SECRET,
        r"private key-----",
        r"-----BEGIN [a-z ]*PRIVATE KEY-----[a-z0-9+/=\s\\:,.-]*",
    ),
    DetectionPass(
        1,
        "cards",
        Detector.PAYMENT_CARD,
        rf"[0-9]{{13}}|[0-9]{{4}}{_CARD_SEPARATOR}[0-9]{{4}}",
        rf"({_NUMBERS_NOT_SEARCHED_FOR_CARDS})|({_WORD_START})({_CARD_NUMBER})\b",
        kept_groups=(1,),
        prefix_groups=(2,),
        match_kind=MatchKind.CARD_NUMBER,
    ),
    DetectionPass(
        2,
        "named secrets",
        Detector.SECRET,
        rf"{_CREDENTIAL_WORD_ENDING}{_WHITESPACE}*[=:\\\"'%]",
        rf"({_CREDENTIAL_WORD})(?:(\"\s*:\s*\[\s*\")[^\"\\](?:[^\"\\]|\\.|\"\s*,\s*\")*"
        rf"|(\\+\"\s*:\s*\[\s*\\+\")(?:[^\"\\]|\\+[^\"\\]|\\+\"\s*,\s*\\+\")+"
        rf"|((?:\"\s*:\s*|{_ASSIGNMENT_SIGN})\")[^\"\\,:}}\]\s](?:[^\"\\]|\\.)*"
        rf"|((?:\\\"\s*:\s*|{_ASSIGNMENT_SIGN})\\\")(?:[^\"\\,:}}\]\s]|\\\\(?:\\[\"\\]|[^\"\\]))(?:[^\"\\]|\\\\(?:\\[\"\\]|[^\"\\]))*"
        rf"|(\\*'?{_ASSIGNMENT_SIGN}\\*')[^'\"\\]+|((?:\\+\"{_ASSIGNMENT_SIGN}\\+\"|{_ASSIGNMENT_SIGN}(?:\\+\")?){_AUTHENTICATION_SCHEME}){_UNQUOTED_VALUE})"
        rf"|(token(?:=|%(?:25)*3d)){_UNQUOTED_VALUE}",
        prefix_groups=(1, 2, 3, 4, 5, 6, 7, 8),
    ),
    DetectionPass(
        3,
        "bearers",
        Detector.TOKEN,
        r"bearer|basic",
        rf"({_SCHEME_WORD_IN_PROSE})|(bearer{_WHITESPACE}+|bearer:{_WHITESPACE}*)[a-z0-9._~+/=-]{{3,}}"
        rf"|(\bbasic{_WHITESPACE}+)(?:[a-z0-9._~+/=-]{{6,}}|[a-z0-9._~+/=-]+=)",
        kept_groups=(1,),
        prefix_groups=(2, 3),
    ),
    DetectionPass(
        3,
        "web tokens",
        Detector.TOKEN,
        r"eyj",
        rf"({_WORD_START})eyj[a-z0-9_-]{{8,}}(?:\.[a-z0-9_-]*)*",
        prefix_groups=(1,),
    ),
    DetectionPass(
        3,
        "known keys",
        Detector.SECRET,
        _PROVIDER_API_KEY_PREFILTER_PATTERN,
        rf"({_WORD_START}){_PROVIDER_API_KEY}",
        prefix_groups=(1,),
    ),
    DetectionPass(
        3,
        "URLs that log in",
        Detector.SECRET,
        r"://[^\s/@\"'\\:]*:[^\s/@\"'\\]*@",
        r"(://)[^\s/@\"'\\:]*:[^\s/@\"'\\]*@[^\s/\"'\\:]+",
        prefix_groups=(1,),
    ),
    DetectionPass(
        4,
        "mail addresses",
        Detector.EMAIL,
        r"@|%(?:25)*40",
        rf"({_ESCAPE_SEQUENCE}?){_MAIL_ADDRESS}",
        prefix_groups=(1,),
        match_kind=MatchKind.EMAIL_ADDRESS,
        occurrence_pattern=rf"(?:{_MAIL_LOCAL_PART_CHARACTER}|{_QUOTED_MAIL_LOCAL_PART_END}){_MAIL_DOMAIN}",
    ),
    DetectionPass(
        5,
        "v6 addresses",
        Detector.IP,
        r"::|%(?:25)*3a|[0-9a-f]:(?:[0-9a-f]+:){5}",
        rf"({_MAC_ADDRESS})|({_WORD_START})(?:{_UNCOMPRESSED_IPV6_ADDRESS})|(\B|_|{_ESCAPE_SEQUENCE}){_IPV6_ADDRESS_STARTING_WITH_COLONS}"
        rf"|({_CODE_WITH_SCOPE_OPERATOR})|({_WORD_START})(?:{_COMPRESSED_IPV6_ADDRESS})|(\B|_|{_ESCAPE_SEQUENCE}){_LOOPBACK_IPV6}",
        kept_groups=(1, 4),
        prefix_groups=(2, 3, 5, 6),
        match_kind=MatchKind.IP_ADDRESS,
    ),
    DetectionPass(
        6,
        "v4 addresses",
        Detector.IP,
        r"[0-9]\.[0-9]+\.[0-9]|%(?:25)*(?:2e|3[0-9])",
        rf"({_FIVE_OR_MORE_DOTTED_NUMBERS})|{_ENCODED_IPV4_ADDRESS}|((?:{_PRODUCT_NAME_LEFT_BOUNDARY}?\b{_WORDS_BEFORE_ADDRESS}/?)|{_WORD_START}){_IPV4_ADDRESS}{_WORD_END}"
        rf"|({_PRODUCT_NAME}|{_PRODUCT_VERSION})",
        kept_groups=(1, 3),
        prefix_groups=(2,),
        match_kind=MatchKind.IP_ADDRESS,
    ),
    DetectionPass(
        7,
        "phones",
        Detector.PHONE,
        r"(?:\+|%(?:25)*2b|\\u002b)[1-9]",
        r"((?:^|[^0-9a-z])\+|%(?:25)*2b|\\u002b)[1-9](?:[ ().-]?[ ().-]?[0-9]){6,14}\b",
        prefix_groups=(1,),
    ),
)

# A field whose name matches this pattern holds a secret, whatever its value.
_SECRET_NAME_PATTERN: Final = rf"(?is)^.*{_CREDENTIAL_WORD}$"


_REGEX_FLAGS: Final = "(?is)"
_CAPTURING_GROUP_PATTERN: Final = re.compile(r"(?<!\\)\((?!\?)")
_SECRET_NAME_REGEX: Final = re.compile(_SECRET_NAME_PATTERN, re.ASCII)


class DetectionStage(msgspec.Struct, frozen=True):
    """One stage of detection: a pattern, its kept and prefix groups, and `prefilter_pattern`, a faster pattern.

    `prefilter_pattern` matches every text in which the pattern has a match, and possibly other texts.
    `occurrence_pattern` matches the same texts as the pattern and has the same groups, but may match only parts of the
    values; Python's `re` module matches it faster.
    """

    pattern: str
    kept_groups: tuple[int, ...]
    prefix_groups: tuple[int, ...]
    match_kind: MatchKind
    prefilter_pattern: str
    occurrence_pattern: str


class DetectionRules(msgspec.Struct, frozen=True, dict=True):
    """The detection stages of a text: first the patterns in the service's settings, then the built-in stages."""

    redaction_rules: RedactionRules

    @cached_property
    def configured_stages(self) -> tuple[DetectionStage, ...]:
        """The stages of the patterns in the service's settings.

        These patterns are case-sensitive. A string within JSON is matched after its escapes are decoded.
        """
        return tuple(
            DetectionStage(
                f"(?s:{named.pattern})", (), (), MatchKind.OTHER, f"(?s:{named.pattern})", f"(?s:{named.pattern})"
            )
            for named in self.redaction_rules.patterns
        )

    @cached_property
    def builtin_stages(self) -> tuple[DetectionStage, ...]:
        enabled = [redaction_pass for redaction_pass in _DETECTION_PASSES if self._is_enabled(redaction_pass.detector)]
        return tuple(
            _combine_passes(tuple(passes))
            for _, passes in groupby(enabled, key=lambda redaction_pass: redaction_pass.stage_number)
        )

    @cached_property
    def stages_before_ip_addresses(self) -> tuple[DetectionStage, ...]:
        """The built-in stages before the last address stage. In most texts, only that last stage has a match."""
        last = max(
            (index for index, stage in enumerate(self.builtin_stages) if stage.match_kind is MatchKind.IP_ADDRESS),
            default=0,
        )
        return self.builtin_stages[:last]

    @cached_property
    def combined_prefilter_pattern(self) -> str:
        """The pattern of a quick check of a text: it matches if any stage may have a match."""
        return "|".join(stage.prefilter_pattern for stage in (*self.builtin_stages, *self.configured_stages))

    def is_secret_name(self, name: str) -> bool:
        """Return whether a field of this name holds a secret, whatever its value."""
        return Detector.SECRET in self.redaction_rules.detectors and _SECRET_NAME_REGEX.search(name) is not None

    def _is_enabled(self, detector: Detector | None) -> bool:
        return detector is None or detector in self.redaction_rules.detectors


def _combine_passes(passes: Sequence[DetectionPass]) -> DetectionStage:
    kept_groups: tuple[int, ...] = ()
    prefix_groups: tuple[int, ...] = ()
    group_count = 0
    for redaction_pass in passes:
        kept_groups += tuple(group_count + number for number in redaction_pass.kept_groups)
        prefix_groups += tuple(group_count + number for number in redaction_pass.prefix_groups)
        group_count += len(_CAPTURING_GROUP_PATTERN.findall(redaction_pass.pattern))
    pattern = "|".join(redaction_pass.pattern for redaction_pass in passes)
    occurrence_pattern = "|".join(
        redaction_pass.occurrence_pattern or redaction_pass.pattern for redaction_pass in passes
    )
    hint = "|".join(redaction_pass.prefilter_pattern for redaction_pass in passes)
    return DetectionStage(
        _REGEX_FLAGS + pattern,
        kept_groups,
        prefix_groups,
        passes[0].match_kind,
        f"(?i:{hint})",
        _REGEX_FLAGS + occurrence_pattern,
    )


# The memory limits of the two caches in `RedactionPolicy`: one holds whether a name is hidden, the other holds shapes
# without hidden names. Each path of such a shape is estimated at 100 bytes.
_HIDDEN_NAMES_CACHE_BYTES: Final = 4 * 2**20
_VISIBLE_KINDS_CACHE_BYTES: Final = 4 * 2**20
_BYTES_PER_CACHED_PATH: Final = 100
_MAX_NAME_CHARACTERS_IN_CACHE: Final = 64
# Senders choose the names of fields, and queries of others wait while names are matched. A name that is longer than
# `_MAX_PRECISELY_MATCHED_NAME_CHARACTERS` is therefore hidden if it matches the hint, and a name that is longer than
# `MAX_LISTED_PATH_CHARACTERS` is hidden without matching.
_MAX_PRECISELY_MATCHED_NAME_CHARACTERS: Final = 128


class RedactionPolicy(msgspec.Struct, frozen=True, dict=True):
    """The redaction rules in one redaction mode. There is one instance for each mode; it caches decisions on names."""

    mode: RedactMode
    rules: RedactionRules = msgspec.field(default_factory=RedactionRules)

    @cached_property
    def detection_rules(self) -> DetectionRules:
        return DetectionRules(self.rules)

    @cached_property
    def _hidden_names_cache(self) -> BoundedCache[str | bytes, bool]:
        return BoundedCache(_HIDDEN_NAMES_CACHE_BYTES, lambda key, _: estimate_memory_bytes(key))

    @cached_property
    def _visible_kinds_cache(self) -> BoundedCache[int, tuple[ValueKindsByPath, "_VisibleKinds"]]:
        return BoundedCache(_VISIBLE_KINDS_CACHE_BYTES, lambda _, kept: _BYTES_PER_CACHED_PATH * len(kept[0]))

    def is_secret_name(self, name: str) -> bool:
        return self.detection_rules.is_secret_name(name)

    def is_hidden_name(self, name: str) -> bool:
        """Return whether a field's name must be hidden because it contains personal data, such as a card number."""
        if len(name) > MAX_LISTED_PATH_CHARACTERS:
            return True
        key = _cache_key_of_name(name)
        cached = self._hidden_names_cache.get(key)
        if cached is None:
            check_cpu_time()
            cached = self._contains_personal_data(name)
            self._hidden_names_cache.put(key, cached)
        return cached

    def visible_shapes(self, shapes: Mapping[str, EventShape]) -> dict[str, EventShape]:
        """Return the shapes without hidden names, so that no hint and no list of columns reveals them."""
        return {stream: self._visible_shape(shape) for stream, shape in shapes.items()}

    def _visible_shape(self, shape: EventShape) -> EventShape:
        whole_shape = self._visible_shape(shape.whole_shape) if shape.whole_shape is not None else None
        return msgspec.structs.replace(
            shape, value_kinds_by_path=self._remove_hidden_paths(shape.value_kinds_by_path), whole_shape=whole_shape
        )

    def _remove_hidden_paths(self, kinds: ValueKindsByPath) -> ValueKindsByPath:
        cached = self._visible_kinds_cache.get(id(kinds))
        if cached is None or cached[0] is not kinds:
            cached = (kinds, _VisibleKinds(kinds, self.is_hidden_name))
            self._visible_kinds_cache.put(id(kinds), cached)
        return cached[1]

    def _contains_personal_data(self, name: str) -> bool:
        if not any(pattern.search(name) for pattern in self._compiled_prefilter_patterns):
            return False
        if len(name) > _MAX_PRECISELY_MATCHED_NAME_CHARACTERS:
            return True
        return any(
            not any(match.group(number) for number in stage.kept_groups)
            for stage, pattern in self._compiled_patterns
            for match in pattern.finditer(name)
        )

    @cached_property
    def _compiled_prefilter_patterns(self) -> list["re.Pattern[str]"]:
        """The hint of all built-in stages, and the patterns in the settings, which may not compile together."""
        builtin = "|".join(stage.prefilter_pattern for stage in self.detection_rules.builtin_stages)
        configured = [stage.prefilter_pattern for stage in self.detection_rules.configured_stages]
        return [pattern for each in (builtin, *configured) if (pattern := _compile_pattern(each)) is not None]

    @cached_property
    def _compiled_patterns(self) -> list[tuple[DetectionStage, "re.Pattern[str]"]]:
        stages = (*self.detection_rules.configured_stages, *self.detection_rules.builtin_stages)
        return [
            (stage, pattern) for stage in stages if (pattern := _compile_pattern(stage.occurrence_pattern)) is not None
        ]


class _VisibleKinds(Mapping[EventPath, frozenset[ValueKind]]):
    """The paths of a shape without a hidden name, with the kinds of values at each path.

    A look-up of one path checks only the names of this path, not those of all paths. The shape of a whole stream has
    names of other projects too, and a query of a pinned caller looks up only the paths that it names.
    """

    def __init__(self, kinds: ValueKindsByPath, is_hidden_name: Callable[[str], bool]) -> None:
        self._kinds = kinds
        self._is_hidden_name = is_hidden_name

    def __getitem__(self, path: EventPath) -> frozenset[ValueKind]:
        kinds = self._kinds[path]
        if any(map(self._is_hidden_name, path)):
            raise KeyError(path)
        return kinds

    def __iter__(self) -> Iterator[EventPath]:
        return iter(self._all_visible)

    def __len__(self) -> int:
        return len(self._all_visible)

    @cached_property
    def _all_visible(self) -> ValueKindsByPath:
        is_hidden = self._is_hidden_name
        return {path: kinds for path, kinds in self._kinds.items() if not any(map(is_hidden, path))}


def _cache_key_of_name(name: str) -> str | bytes:
    """Return a short name itself, and the digest of a long name, so that the cache holds many long names."""
    if len(name) <= _MAX_NAME_CHARACTERS_IN_CACHE:
        return name
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _compile_pattern(pattern: str) -> "re.Pattern[str] | None":
    """Return the pattern compiled by Python, or None if Python cannot compile it.

    A pattern in the service's settings may have syntax that only RE2 has.
    """
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None
