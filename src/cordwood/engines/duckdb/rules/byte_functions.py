"""Functions of bytes: digests, encodings, and the addresses and hosts of NET functions."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import WORDS, fail, fail_if, once
from cordwood.engines.duckdb.rules.digests import (
    FINGERPRINT,
    MAX_FINGERPRINT_BYTES,
    MAX_SHA512_BYTES,
    SHA512,
    farm_fingerprint,
)
from cordwood.engines.duckdb.rules.strings import as_text
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import datatype_of, typed_as
from cordwood.sql.lowering import Rule, RuleSet, data_part, fragment, unsupported
from cordwood.sql.nodes import constant_bytes, constant_int, is_null
from cordwood.sql.rules.functions import HASHES, NET, Checked, Key, Over, Template, rules_from_templates
from cordwood.sql.rules.strings import as_net_call, refuse_public_suffix

CompileTimeFunction = Callable[[bytes], bytes | str | int]


def _computed_for_literal(function: CompileTimeFunction) -> Rule:
    """Return the rule that computes a function of a literal at compile time, for functions that DuckDB lacks."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = node.this or node.expressions[0]
        if is_null(argument.this if isinstance(argument, exp.Cast) else argument):
            return typed_as(fragment("NULL"), datatype_of(node))
        data = constant_bytes(argument)
        if data is None:
            return node
        return typed_as(_literal(function(data)), datatype_of(node))

    return rule


def _literal(value: bytes | str | int) -> exp.Expr:
    if isinstance(value, bytes):
        return fragment("{0}::BLOB", data_part(value))
    return exp.Literal.string(value) if isinstance(value, str) else fragment(f"({value})::BIGINT")


def _sha512(node: exp.Expr) -> exp.Expr:
    return (
        _computed_for_literal(lambda data: hashlib.sha512(data).digest())(node)
        if constant_int(node.args.get("length")) == 512
        else node
    )


_BASE32: Final = "'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'"
_BITS: Final = "rpad(nullif(@a::BLOB, ''::BLOB)::BIT::VARCHAR, ((octet_length(@a::BLOB) * 8 + 4) // 5 * 5)::INT, '0')"
_TO_LETTERS: Final = f"array_to_string(list_transform(regexp_extract_all({_BITS}, '.....'), lambda _g: {_BASE32}[('0b' || _g)::INT + 1]), '')"
_FROM_LETTERS: Final = (
    "array_to_string(list_transform(string_split(rtrim(@a, '='), ''),"
    f" lambda _g: right(bin(strpos({_BASE32}, _g) + 31), 5)), '')"
)

_HASH_TEMPLATES: Final[Mapping[Key, Template]] = {
    # TO_HEX(MD5(…)), which the parser represents as one node.
    exp.MD5: "md5({0})",
    exp.MD5Digest: "unhex(md5({0}))",
    exp.SHA1Digest: "unhex(sha1({0}))",
    exp.SHA: "unhex(sha1({0}))",
    exp.LowerHex: "lower(hex({0}))",
    # An odd number of digits is padded with a zero in front.
    exp.Unhex: Checked(
        "NOT regexp_full_match(@a, '[0-9a-fA-F]*')", "unhex(CASE WHEN length(@a) % 2 = 1 THEN '0' || @a ELSE @a END)"
    ),
    exp.FarmFingerprint: Checked(f"length(hex(@a)) > {2 * MAX_FINGERPRINT_BYTES}", FINGERPRINT),
    exp.ToBase64: "to_base64({0})",
    exp.FromBase64: "from_base64(@a)",
    # Five bits per letter, padded to a multiple of eight letters.
    exp.ToBase32: (
        "CASE WHEN octet_length(@a::BLOB) = 0 THEN ''"
        f" ELSE rpad({_TO_LETTERS}, ((octet_length(@a::BLOB) + 4) // 5 * 8)::INT, '=') END"
    ),
    exp.FromBase32: Checked(
        "@a <> '' AND NOT (regexp_full_match(@a, '[A-Z2-7]*=*') AND length(@a) % 8 = 0)",
        f"CASE WHEN @a = '' THEN ''::BLOB ELSE unbin(left({_FROM_LETTERS}, (length(rtrim(@a, '=')) * 5 // 8 * 8)::INT)) END",
    ),
}


def _sha2(node: exp.Expr) -> exp.Expr:
    bits, value = constant_int(node.args.get("length")) or 256, as_text(node.this)
    if bits == 256:
        return fragment("unhex(sha256({0}))", value)
    if bits != 512:
        unsupported(node, f"SHA{bits}")
    too_long = f"SHA512 of more than {MAX_SHA512_BYTES} bytes of a column"
    return once(fail_if(node, f"length(hex(@a)) > {2 * MAX_SHA512_BYTES}", too_long, SHA512), value)


HASH_RULES = RuleSet(
    nodes={
        **rules_from_templates(WORDS, HASHES, _HASH_TEMPLATES).nodes,
        exp.SHA2Digest: _sha2,
    },
    before_children={
        exp.SHA2Digest: _sha512,
        exp.FarmFingerprint: _computed_for_literal(farm_fingerprint),
    },
)


_V4: Final = r"regexp_full_match(@a, '(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3,3}')"
_V4_HEX: Final = (
    "array_to_string(list_transform(string_split(@s, '.'), lambda _o: printf('%02X', try_cast(_o AS INT))), '')"
)

# In an IPv6 address, an IPv4 tail becomes two groups, and `::` becomes as many zero groups as are missing.
_TAIL: Final = r"regexp_extract(@a, '(\d{1,3}(\.\d{1,3}){3,3})$', 1)"
_GROUPED: Final = (
    f"CASE WHEN {_TAIL} = '' THEN @a ELSE left(@a, length(@a) - length({_TAIL})) || "
    f"left({_V4_HEX.replace('@s', _TAIL)}, 4) || ':' || right({_V4_HEX.replace('@s', _TAIL)}, 4) END"
)
_SIDE: Final = (
    "CASE WHEN @p = '' THEN '' ELSE array_to_string(list_transform(string_split(@p, ':'),"
    " lambda _g: lpad(upper(_g), 4, '0')), '') END"
)


def _from_string(*, safe: bool) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        failure = "NULL" if safe else fail(node, "Invalid IP address")
        left = _SIDE.replace("@p", "string_split(@b, '::')[1]")
        right = _SIDE.replace("@p", "coalesce(string_split(@b, '::')[2], '')")
        hex_text = f"rpad({left}, CAST(32 - length({right}) AS INT), '0') || {right}"
        v6 = r"regexp_full_match(@b, '(?i)[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7,7}|"
        v6 += r"((?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?)::((?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?)')"
        v6 += f" AND length({hex_text}) = 32"
        body = f"CASE WHEN @a IS NULL THEN NULL WHEN {_V4} THEN unhex({_V4_HEX.replace('@s', '@a')})"
        body += f" WHEN {v6} THEN unhex({hex_text}) ELSE {failure} END"
        value = as_text(node.expressions[0])
        return once(body, value, once(_GROUPED, copied(value)))

    return rule


_OCTETS: Final = (
    "array_to_string(list_transform(regexp_extract_all(@a, '..'), lambda _p: CAST('0x' || _p AS INT)::VARCHAR), '.')"
)
_GROUPS: Final = (
    "array_to_string(list_transform(regexp_extract_all(lower(@a), '....'),"
    " lambda _p: coalesce(nullif(ltrim(_p, '0'), ''), '0')), ':')"
)
# SQL that replaces the longest run of zero groups by `::`.
_SHORTENED: Final = "".join(
    rf" WHEN regexp_matches({_GROUPS}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)')"
    rf" THEN regexp_replace({_GROUPS}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)', '::')"
    for count in range(8, 1, -1)
)
_IS_MAPPED: Final = "starts_with(@a, '00000000000000000000FFFF')"
_NIBBLE: Final = "CASE @b % 4 WHEN 0 THEN '' WHEN 1 THEN '8' WHEN 2 THEN 'C' ELSE 'E' END"
_DIGIT: Final = "CAST('0x' || substring(@a, @b // 4 + 1, 1) AS INT)"
_KEPT_DIGIT: Final = f"CASE WHEN @b % 4 = 0 THEN '' ELSE printf('%X', {_DIGIT} & (15 << (4 - @b % 4)::INT)) END"
_URL: Final = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^:/?#\s]*)"
_HOST_ONLY: Final = r"^\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\s@]+\.[^:/?#\s@]+)(?:[:/?#].*)?\s*$"

_NET_TEMPLATES: Final[Mapping[Key, Template]] = {
    "NET.IP_TO_STRING": Over(
        "hex({0})",
        Checked(
            "length(@a) NOT IN (8, 32)",
            f"CASE WHEN @a IS NULL THEN NULL WHEN length(@a) = 8 THEN {_OCTETS} WHEN {_IS_MAPPED}"
            f" THEN '::ffff:' || {_OCTETS.replace('@a', 'right(@a, 8)')}{_SHORTENED} ELSE {_GROUPS} END",
        ),
    ),
    "NET.IP_NET_MASK": Checked(
        "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8",
        f"unhex(rpad(repeat('F', @checked // 4) || {_NIBBLE}, CAST(@a * 2 AS INT), '0'))",
        "@b",
    ),
    "NET.IP_TRUNC": Over(
        "hex({0})",
        Checked(
            "length(@a) NOT IN (8, 32) OR @b < 0 OR @b > length(@a) * 4",
            f"unhex(rpad(left(@a, @b // 4) || {_KEPT_DIGIT}, CAST(length(@a) AS INT), '0'))",
        ),
    ),
    "NET.IPV4_FROM_INT64": "unhex(printf('%08X', CASE WHEN @a < 0 THEN @a + 4294967296 ELSE @a END))",
    "NET.IPV4_TO_INT64": Over("hex({0})", Checked("length(@a) <> 8", "CAST('0x' || @a AS BIGINT)")),
    # The host as written, without user and port, and without unmatched brackets.
    "NET.HOST": (
        f"coalesce(nullif(regexp_extract(@a, '{_URL}', 1), ''), nullif(regexp_extract(@a, '{_HOST_ONLY}', 1), ''))"
    ),
}

NET_RULES = RuleSet(
    before_children={exp.NetFunc: as_net_call},
    by_name={
        **rules_from_templates(WORDS, NET, _NET_TEMPLATES).by_name,
        "NET.IP_FROM_STRING": _from_string(safe=False),
        "NET.SAFE_IP_FROM_STRING": _from_string(safe=True),
        **dict.fromkeys(("NET.REG_DOMAIN", "NET.PUBLIC_SUFFIX"), refuse_public_suffix),
    },
)
