"""NET functions: addresses as bytes; hosts of URLs."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if, null_of, once
from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.engines.clickhouse.rules.words import WORDS
from cordwood.sql.constants import is_null
from cordwood.sql.datatypes import BYTES
from cordwood.sql.lowering import RuleSet, mark_safe
from cordwood.sql.rules.functions import NET, Checked, Key, Template, table_rules
from cordwood.sql.rules.strings import as_net_call, refuse_public_suffix


def _from_string(node: exp.Expr) -> exp.Expr:
    if is_null(node.expressions[0]):
        return null_of(BYTES)
    as_ipv4, as_ipv6 = "IPv4StringToNumOrNull(@a)", "IPv6StringToNumOrNull(@a)"
    is_invalid = f"(isNotNull(@a) AND isNull({as_ipv4}) AND isNull({as_ipv6}))"
    # The bytes are made from hexadecimal digits, because a FixedString loses trailing zeros when it is converted to
    # text.
    body = f"unhex(if(isNotNull({as_ipv4}), leftPad(hex({as_ipv4}), 8, '0'), hex({as_ipv6})))"
    return once(fail_if(node, is_invalid, "Invalid IP address", body), as_text(node.expressions[0]))


def _byte(bits: str) -> str:
    """Return a byte whose highest bits are set, as many as `bits` says, limited to the range from 0 to 8."""
    return f"bitAnd(bitShiftLeft(toUInt16(255), toUInt8(8 - greatest(least({bits}, 8), 0))), 255)"


_MASK_BYTE: Final = _byte("assumeNotNull(@b) - 8 * toInt64(_i)")
_VALUE: Final = "assumeNotNull(@a)"
_OF_BYTES: Final = "if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat(arrayMap(_i -> char({}), range({}))))".format
_URL: Final = r"^\\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\\[[^\\]/?#]*\\]|[^:/?#\\s]*)"
_HOST_ONLY: Final = r"^\\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\\s@]+\\.[^:/?#\\s@]+)(?:[:/?#].*)?\\s*$"

_TEMPLATES: Final[Mapping[Key, Template]] = {
    "NET.IP_TO_STRING": Checked(
        "length(@a) NOT IN (4, 16)",
        f"multiIf(isNull(@a), NULL, length(@a) = 4, IPv4NumToString(reinterpretAsUInt32(reverse({_VALUE}))),"
        f" IPv6NumToString(toFixedString(if(length(@a) = 16, {_VALUE}, ''), 16)))",
    ),
    "NET.IP_NET_MASK": _OF_BYTES(_MASK_BYTE, f"toUInt64({_VALUE})"),
    "NET.IP_TRUNC": Checked(
        "(length(@a) NOT IN (4, 16) OR @b < 0 OR @b > toInt64(length(@a)) * 8)",
        _OF_BYTES(f"bitAnd(reinterpretAsUInt8(substring({_VALUE}, _i + 1, 1)), {_MASK_BYTE})", f"length({_VALUE})"),
    ),
    "NET.IPV4_FROM_INT64": "unhex(leftPad(hex(toUInt32(bitAnd(@a, 4294967295))), 8, '0'))",
    "NET.IPV4_TO_INT64": Checked("length(@a) != 4", "toInt64(reinterpretAsUInt32(reverse(@a)))"),
    # The host as written, without user and port, and without unmatched brackets.
    "NET.HOST": f"coalesce(nullIf(extract(@a, '{_URL}'), ''), nullIf(extract(@a, '{_HOST_ONLY}'), ''))",
}

RULES = RuleSet(
    before_children={exp.NetFunc: as_net_call},
    by_name={
        **table_rules(WORDS, NET, _TEMPLATES).by_name,
        "NET.IP_FROM_STRING": _from_string,
        "NET.SAFE_IP_FROM_STRING": lambda node: _from_string(mark_safe(node)),
        **dict.fromkeys(("NET.REG_DOMAIN", "NET.PUBLIC_SUFFIX"), refuse_public_suffix),
    },
)
