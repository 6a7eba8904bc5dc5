"""NET functions: addresses as bytes, computed on hexadecimal text; hosts of URLs."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import attempt, fail, once
from cordwood.engines.duckdb.rules.strings import as_text
from cordwood.sql.bigquery.strings import as_net_call, refuse_public_suffix
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet

_V4: Final = r"regexp_full_match(@a, '(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3,3}')"
_V4_HEX: Final = (
    "array_to_string(list_transform(string_split(@s, '.'), lambda _o: printf('%02X', try_cast(_o AS INT))), '')"
)

# An IPv4 tail becomes two groups; `::` becomes as many zero groups as are missing.
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


def _to_string(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "NET.IP_TO_STRING() requires 4 or 16 bytes")
    octets = "array_to_string(list_transform(regexp_extract_all(@a, '..'), lambda _p: CAST('0x' || _p AS INT)::VARCHAR), '.')"
    groups = "array_to_string(list_transform(regexp_extract_all(lower(@a), '....'),"
    groups += " lambda _p: coalesce(nullif(ltrim(_p, '0'), ''), '0')), ':')"
    shortened = "".join(
        rf" WHEN regexp_matches({groups}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)')"
        rf" THEN regexp_replace({groups}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)', '::')"
        for count in range(8, 1, -1)
    )
    mapped = "starts_with(@a, '00000000000000000000FFFF')"
    tail = octets.replace("@a", "right(@a, 8)")
    body = f"CASE WHEN @a IS NULL THEN NULL WHEN length(@a) = 8 THEN {octets} WHEN length(@a) <> 32 THEN {failure}"
    body += f" WHEN {mapped} THEN '::ffff:' || {tail}{shortened} ELSE {groups} END"
    return once(body, fragment("hex({0})", node.expressions[0]))


def _mask(node: exp.Expr) -> exp.Expr:
    length, prefix = node.expressions
    failure = fail(node, "The arguments of NET.IP_NET_MASK() are out of range")
    nibble = "CASE @b % 4 WHEN 0 THEN '' WHEN 1 THEN '8' WHEN 2 THEN 'C' ELSE 'E' END"
    bits = f"rpad(repeat('F', @b // 4) || {nibble}, CAST(@a * 2 AS INT), '0')"
    guard = "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8"
    return once(f"CASE WHEN {guard} THEN {failure} ELSE unhex({bits}) END", length, prefix)


def _truncate(node: exp.Expr) -> exp.Expr:
    address, prefix = node.expressions
    failure = fail(node, "The arguments of NET.IP_TRUNC() are out of range")
    digit = "CAST('0x' || substring(@a, @b // 4 + 1, 1) AS INT)"
    kept_digit = f"CASE WHEN @b % 4 = 0 THEN '' ELSE printf('%X', {digit} & (15 << (4 - @b % 4)::INT)) END"
    bits = f"rpad(left(@a, @b // 4) || {kept_digit}, CAST(length(@a) AS INT), '0')"
    guard = "length(@a) NOT IN (8, 32) OR @b < 0 OR @b > length(@a) * 4"
    return once(f"CASE WHEN {guard} THEN {failure} ELSE unhex({bits}) END", fragment("hex({0})", address), prefix)


def _v4_from_int(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "NET.IPV4_FROM_INT64() encountered an integer out of range")
    unsigned = "CASE WHEN @a < 0 THEN @a + 4294967296 ELSE @a END"
    guard = "@a < -2147483648 OR @a > 4294967295"
    return once(f"CASE WHEN {guard} THEN {failure} ELSE unhex(printf('%08X', {unsigned})) END", node.expressions[0])


def _v4_to_int(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "NET.IPV4_TO_INT64() requires 4 bytes")
    body = f"CASE WHEN length(@a) <> 8 THEN {failure} ELSE CAST('0x' || @a AS BIGINT) END"
    return once(body, fragment("hex({0})", node.expressions[0]))


def _host(node: exp.Expr) -> exp.Expr:
    """Lower NET.HOST: the host as written, without user and port, and without unmatched brackets."""
    pattern = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^:/?#\s]*)"
    without_scheme = r"^\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\s@]+\.[^:/?#\s@]+)(?:[:/?#].*)?\s*$"
    body = f"coalesce(nullif(regexp_extract(@a, '{pattern}', 1), ''), nullif(regexp_extract(@a, '{without_scheme}', 1), ''))"
    return attempt(node, body, as_text(node.expressions[0]))


RULES = RuleSet(
    before_children={exp.NetFunc: as_net_call},
    by_name={
        "NET.IP_FROM_STRING": _from_string(safe=False),
        "NET.SAFE_IP_FROM_STRING": _from_string(safe=True),
        "NET.IP_TO_STRING": _to_string,
        "NET.IP_NET_MASK": _mask,
        "NET.IP_TRUNC": _truncate,
        "NET.IPV4_FROM_INT64": _v4_from_int,
        "NET.IPV4_TO_INT64": _v4_to_int,
        "NET.HOST": _host,
        "NET.REG_DOMAIN": refuse_public_suffix,
        "NET.PUBLIC_SUFFIX": refuse_public_suffix,
    },
)
