"""Rules for functions of bytes: digests, encodings, and the NET functions of addresses and hosts."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import COMMON_SQL, fail_if_sql, fill_template, typed_null
from cordwood.engines.clickhouse.rules.strings import convert_variant_to_text
from cordwood.sql.datatypes import BYTES
from cordwood.sql.lowering import RuleSet, fragment_node, mark_null_on_error, raise_unsupported
from cordwood.sql.nodes import constant_int, is_null
from cordwood.sql.rules.functions import (
    HASH_FUNCTIONS,
    NET_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    rules_from_templates,
)
from cordwood.sql.rules.strings import as_net_call, refuse_public_suffix_function


def _translate_sha2(node: exp.Expr) -> exp.Expr:
    bits = constant_int(node.args.get("length")) or 256
    if bits not in (256, 512):
        raise_unsupported(node, f"SHA{bits}")
    return fragment_node(f"toString(SHA{bits}({{0}}))", convert_variant_to_text(node.this))


def _checked_base_decode_template(base: int) -> CheckedTemplate:
    decoded = f"tryBase{base}Decode(@a)"
    return CheckedTemplate(f"(@a != '' AND {decoded} = '')", decoded)


_HASH_TEMPLATES: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    exp.MD5: "lower(hex(MD5({0})))",
    exp.MD5Digest: "toString(MD5({0}))",
    exp.SHA: "toString(SHA1({0}))",
    exp.SHA1Digest: "toString(SHA1({0}))",
    exp.LowerHex: "lower(hex({0}))",
    exp.Hex: "hex({0})",
    exp.Unhex: CheckedTemplate("NOT match(@a, '^[0-9a-fA-F]*$')", "unhex(@a)"),
    exp.ToBase64: "base64Encode({0})",
    exp.FromBase64: _checked_base_decode_template(64),
    exp.ToBase32: "base32Encode({0})",
    exp.FromBase32: _checked_base_decode_template(32),
    exp.FarmFingerprint: "reinterpretAsInt64(farmFingerprint64({0}))",
    exp.Uuid: "toString(generateUUIDv4())",
}

HASH_RULES = RuleSet(
    by_node_class={
        **rules_from_templates(COMMON_SQL, HASH_FUNCTIONS, _HASH_TEMPLATES).by_node_class,
        exp.SHA2: _translate_sha2,
        exp.SHA2Digest: _translate_sha2,
    }
)


def _translate_ip_from_string(node: exp.Expr) -> exp.Expr:
    if is_null(node.expressions[0]):
        return typed_null(BYTES)
    as_ipv4, as_ipv6 = "IPv4StringToNumOrNull(@a)", "IPv6StringToNumOrNull(@a)"
    is_invalid = f"(isNotNull(@a) AND isNull({as_ipv4}) AND isNull({as_ipv6}))"
    # The bytes are made from hexadecimal digits, because a FixedString loses trailing zeros when it is converted to
    # text.
    body = f"unhex(if(isNotNull({as_ipv4}), leftPad(hex({as_ipv4}), 8, '0'), hex({as_ipv6})))"
    return fill_template(
        fail_if_sql(node, is_invalid, "Invalid IP address", body), convert_variant_to_text(node.expressions[0])
    )


def _mask_byte_sql(bits: str) -> str:
    """Return SQL for a byte whose highest `bits` bits are set; the SQL limits `bits` to the range from 0 to 8."""
    return f"bitAnd(bitShiftLeft(toUInt16(255), toUInt8(8 - greatest(least({bits}, 8), 0))), 255)"


_NETWORK_MASK_BYTE_SQL: Final = _mask_byte_sql("assumeNotNull(@b) - 8 * toInt64(_i)")
_NON_NULL_VALUE_SQL: Final = "assumeNotNull(@a)"
_join_bytes_sql: Final = (
    "if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat(arrayMap(_i -> char({}), range({}))))".format
)
_URL_HOST_PATTERN: Final = r"^\\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\\[[^\\]/?#]*\\]|[^:/?#\\s]*)"
_BARE_HOST_PATTERN: Final = r"^\\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\\s@]+\\.[^:/?#\\s@]+)(?:[:/?#].*)?\\s*$"

_NET_TEMPLATES: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    "NET.IP_TO_STRING": CheckedTemplate(
        "length(@a) NOT IN (4, 16)",
        f"multiIf(isNull(@a), NULL, length(@a) = 4, IPv4NumToString(reinterpretAsUInt32(reverse({_NON_NULL_VALUE_SQL}))),"
        f" IPv6NumToString(toFixedString(if(length(@a) = 16, {_NON_NULL_VALUE_SQL}, ''), 16)))",
    ),
    "NET.IP_NET_MASK": _join_bytes_sql(_NETWORK_MASK_BYTE_SQL, f"toUInt64({_NON_NULL_VALUE_SQL})"),
    "NET.IP_TRUNC": CheckedTemplate(
        "(length(@a) NOT IN (4, 16) OR @b < 0 OR @b > toInt64(length(@a)) * 8)",
        _join_bytes_sql(
            f"bitAnd(reinterpretAsUInt8(substring({_NON_NULL_VALUE_SQL}, _i + 1, 1)), {_NETWORK_MASK_BYTE_SQL})",
            f"length({_NON_NULL_VALUE_SQL})",
        ),
    ),
    "NET.IPV4_FROM_INT64": "unhex(leftPad(hex(toUInt32(bitAnd(@a, 4294967295))), 8, '0'))",
    "NET.IPV4_TO_INT64": CheckedTemplate("length(@a) != 4", "toInt64(reinterpretAsUInt32(reverse(@a)))"),
    # NET.HOST returns the host as it is written, without user and port. A host in brackets keeps its brackets.
    "NET.HOST": f"coalesce(nullIf(extract(@a, '{_URL_HOST_PATTERN}'), ''), nullIf(extract(@a, '{_BARE_HOST_PATTERN}'), ''))",
}

NET_RULES = RuleSet(
    by_node_class_before_children={exp.NetFunc: as_net_call},
    by_function_name={
        **rules_from_templates(COMMON_SQL, NET_FUNCTIONS, _NET_TEMPLATES).by_function_name,
        "NET.IP_FROM_STRING": _translate_ip_from_string,
        "NET.SAFE_IP_FROM_STRING": lambda node: _translate_ip_from_string(mark_null_on_error(node)),
        **dict.fromkeys(("NET.REG_DOMAIN", "NET.PUBLIC_SUFFIX"), refuse_public_suffix_function),
    },
)
