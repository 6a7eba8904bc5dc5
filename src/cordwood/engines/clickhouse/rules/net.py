"""NET functions: addresses as bytes; hosts of URLs."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if, null_of, once
from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.sql.bigquery.strings import as_net_call, refuse_public_suffix
from cordwood.sql.constants import is_null
from cordwood.sql.fragment import text_part
from cordwood.sql.lowering import Rule, RuleSet, mark_safe
from cordwood.sql.typing.datatypes import BYTES


def _from_string(node: exp.Expr) -> exp.Expr:
    if is_null(node.expressions[0]):
        return null_of(BYTES)
    as_ipv4, as_ipv6 = "IPv4StringToNumOrNull(@a)", "IPv6StringToNumOrNull(@a)"
    is_invalid = f"(isNotNull(@a) AND isNull({as_ipv4}) AND isNull({as_ipv6}))"
    # The bytes are made from hexadecimal digits, because a FixedString loses trailing zeros when it is converted to
    # text.
    body = f"unhex(if(isNotNull({as_ipv4}), leftPad(hex({as_ipv4}), 8, '0'), hex({as_ipv6})))"
    return once(fail_if(node, is_invalid, "Invalid IP address", body), as_text(node.expressions[0]))


def _safely(rule: Rule) -> Rule:
    return lambda node: rule(mark_safe(node))


def _to_string(node: exp.Expr) -> exp.Expr:
    as_ipv4 = "IPv4NumToString(reinterpretAsUInt32(reverse(assumeNotNull(@a))))"
    as_ipv6 = "IPv6NumToString(toFixedString(if(length(@a) = 16, assumeNotNull(@a), ''), 16))"
    body = f"multiIf(isNull(@a), NULL, length(@a) = 4, {as_ipv4}, {as_ipv6})"
    is_invalid = "length(@a) NOT IN (4, 16)"
    return once(fail_if(node, is_invalid, "NET.IP_TO_STRING() requires 4 or 16 bytes", body), node.expressions[0])


def _byte(bits: str) -> str:
    """Return a byte whose highest bits are set, as many as `bits` says, limited to the range from 0 to 8."""
    return f"bitAnd(bitShiftLeft(toUInt16(255), toUInt8(8 - greatest(least({bits}, 8), 0))), 255)"


def _mask(node: exp.Expr) -> exp.Expr:
    is_invalid = "(@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8)"
    bytes_ = f"arrayMap(_i -> char({_byte('assumeNotNull(@b) - 8 * toInt64(_i)')}), range(toUInt64(assumeNotNull(@a))))"
    body = f"if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat({bytes_}))"
    return once(
        fail_if(node, is_invalid, "The arguments of NET.IP_NET_MASK() are out of range", body), *node.expressions
    )


def _truncate(node: exp.Expr) -> exp.Expr:
    is_invalid = "(length(@a) NOT IN (4, 16) OR @b < 0 OR @b > toInt64(length(@a)) * 8)"
    value = "assumeNotNull(@a)"
    masked_byte = f"char(bitAnd(reinterpretAsUInt8(substring({value}, _i + 1, 1)), {_byte('assumeNotNull(@b) - 8 * toInt64(_i)')}))"
    body = (
        f"if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat(arrayMap(_i -> {masked_byte}, range(length({value})))))"
    )
    return once(fail_if(node, is_invalid, "The arguments of NET.IP_TRUNC() are out of range", body), *node.expressions)


def _v4_from_int(node: exp.Expr) -> exp.Expr:
    is_invalid = "(@a < -2147483648 OR @a > 4294967295)"
    body = "unhex(leftPad(hex(toUInt32(bitAnd(@a, 4294967295))), 8, '0'))"
    message = "NET.IPV4_FROM_INT64() encountered an integer out of range"
    return once(fail_if(node, is_invalid, message, body), node.expressions[0])


def _v4_to_int(node: exp.Expr) -> exp.Expr:
    body = "toInt64(reinterpretAsUInt32(reverse(@a)))"
    message = "NET.IPV4_TO_INT64() requires 4 bytes"
    return once(fail_if(node, "length(@a) != 4", message, body), node.expressions[0])


_URL: Final = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^:/?#\s]*)"
_HOST_ONLY: Final = r"^\s*(?:[a-zA-Z0-9._~%!$&'()*+,;=-]*@)?([^:/?#\s@]+\.[^:/?#\s@]+)(?:[:/?#].*)?\s*$"


def _host(node: exp.Expr) -> exp.Expr:
    """Lower NET.HOST: the host as written, without user and port, and without unmatched brackets."""
    body = "coalesce(nullIf(extract(@a, {0}), ''), nullIf(extract(@a, {1}), ''))"
    return once(body, as_text(node.expressions[0]), texts=[text_part(_URL), text_part(_HOST_ONLY)])


RULES = RuleSet(
    before_children={exp.NetFunc: as_net_call},
    by_name={
        "NET.IP_FROM_STRING": _from_string,
        "NET.SAFE_IP_FROM_STRING": _safely(_from_string),
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
