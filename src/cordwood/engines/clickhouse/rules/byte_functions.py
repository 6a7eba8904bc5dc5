"""Functions of bytes: digests, encodings, and the addresses and hosts of NET functions."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import WORDS, fail_if, null_of, once
from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.sql.datatypes import BYTES
from cordwood.sql.lowering import RuleSet, fragment, mark_safe, unsupported
from cordwood.sql.nodes import constant_int, is_null
from cordwood.sql.rules.functions import HASHES, NET, Checked, Key, Template, rules_from_templates
from cordwood.sql.rules.strings import as_net_call, refuse_public_suffix


def _sha2(node: exp.Expr) -> exp.Expr:
    bits = constant_int(node.args.get("length")) or 256
    if bits not in (256, 512):
        unsupported(node, f"SHA{bits}")
    return fragment(f"toString(SHA{bits}({{0}}))", as_text(node.this))


def _decode(base: int) -> Checked:
    decoded = f"tryBase{base}Decode(@a)"
    return Checked(f"(@a != '' AND {decoded} = '')", decoded)


_HASH_TEMPLATES: Final[Mapping[Key, Template]] = {
    exp.MD5: "lower(hex(MD5({0})))",
    exp.MD5Digest: "toString(MD5({0}))",
    exp.SHA: "toString(SHA1({0}))",
    exp.SHA1Digest: "toString(SHA1({0}))",
    exp.LowerHex: "lower(hex({0}))",
    exp.Hex: "hex({0})",
    exp.Unhex: Checked("NOT match(@a, '^[0-9a-fA-F]*$')", "unhex(@a)"),
    exp.ToBase64: "base64Encode({0})",
    exp.FromBase64: _decode(64),
    exp.ToBase32: "base32Encode({0})",
    exp.FromBase32: _decode(32),
    exp.FarmFingerprint: "reinterpretAsInt64(farmFingerprint64({0}))",
    exp.Uuid: "toString(generateUUIDv4())",
}

HASH_RULES = RuleSet(
    nodes={**rules_from_templates(WORDS, HASHES, _HASH_TEMPLATES).nodes, exp.SHA2: _sha2, exp.SHA2Digest: _sha2}
)


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
    """Return SQL for a byte with its highest `bits` bits set; `bits` is limited to the range from 0 to 8."""
    return f"bitAnd(bitShiftLeft(toUInt16(255), toUInt8(8 - greatest(least({bits}, 8), 0))), 255)"


_MASK_BYTE: Final = _byte("assumeNotNull(@b) - 8 * toInt64(_i)")
_VALUE: Final = "assumeNotNull(@a)"
_OF_BYTES: Final = "if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat(arrayMap(_i -> char({}), range({}))))".format
_URL: Final = r"^\\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\\[[^\\]/?#]*\\]|[^:/?#\\s]*)"
_HOST_ONLY: Final = r"^\\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\\s@]+\\.[^:/?#\\s@]+)(?:[:/?#].*)?\\s*$"

_NET_TEMPLATES: Final[Mapping[Key, Template]] = {
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

NET_RULES = RuleSet(
    before_children={exp.NetFunc: as_net_call},
    by_name={
        **rules_from_templates(WORDS, NET, _NET_TEMPLATES).by_name,
        "NET.IP_FROM_STRING": _from_string,
        "NET.SAFE_IP_FROM_STRING": lambda node: _from_string(mark_safe(node)),
        **dict.fromkeys(("NET.REG_DOMAIN", "NET.PUBLIC_SUFFIX"), refuse_public_suffix),
    },
)
