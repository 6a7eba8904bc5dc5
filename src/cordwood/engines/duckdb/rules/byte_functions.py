"""Rules for functions of bytes: digests, encodings, and the NET functions of IP addresses and hosts."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import COMMON_SQL, fail_if_sql, failure_sql, fill_template
from cordwood.engines.duckdb.rules.digests import (
    FARM_FINGERPRINT_SQL,
    MAX_FINGERPRINT_BYTES,
    MAX_SHA512_BYTES,
    SHA512_SQL,
    farm_fingerprint,
)
from cordwood.engines.duckdb.rules.strings import convert_variant_to_text
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, set_datatype
from cordwood.sql.lowering import LoweringRule, RuleSet, bytes_literal_node, fragment_node, raise_unsupported
from cordwood.sql.nodes import constant_bytes, constant_int, is_null
from cordwood.sql.rules.functions import (
    HASH_FUNCTIONS,
    NET_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    TransformedArgumentTemplate,
    rules_from_templates,
)
from cordwood.sql.rules.strings import as_net_call, refuse_public_suffix_function

CompileTimeFunction = Callable[[bytes], bytes | str | int]


def _compile_time_rule(function: CompileTimeFunction) -> LoweringRule:
    """Return the rule that computes `function` in Python if its argument is a literal, because DuckDB lacks it."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = node.this or node.expressions[0]
        if is_null(argument.this if isinstance(argument, exp.Cast) else argument):
            return set_datatype(fragment_node("NULL"), datatype_of(node))
        data = constant_bytes(argument)
        if data is None:
            return node
        return set_datatype(_python_value_literal(function(data)), datatype_of(node))

    return rule


def _python_value_literal(value: bytes | str | int) -> exp.Expr:
    if isinstance(value, bytes):
        return fragment_node("{0}::BLOB", bytes_literal_node(value))
    return exp.Literal.string(value) if isinstance(value, str) else fragment_node(f"({value})::BIGINT")


def _translate_sha512_of_literal(node: exp.Expr) -> exp.Expr:
    return (
        _compile_time_rule(lambda data: hashlib.sha512(data).digest())(node)
        if constant_int(node.args.get("length")) == 512
        else node
    )


_BASE32_ALPHABET_SQL: Final = "'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'"
_BASE32_PADDED_BITS_SQL: Final = (
    "rpad(nullif(@a::BLOB, ''::BLOB)::BIT::VARCHAR, ((octet_length(@a::BLOB) * 8 + 4) // 5 * 5)::INT, '0')"
)
_BASE32_LETTERS_SQL: Final = f"array_to_string(list_transform(regexp_extract_all({_BASE32_PADDED_BITS_SQL}, '.....'), lambda _g: {_BASE32_ALPHABET_SQL}[('0b' || _g)::INT + 1]), '')"
_BASE32_DECODED_BITS_SQL: Final = (
    "array_to_string(list_transform(string_split(rtrim(@a, '='), ''),"
    f" lambda _g: right(bin(strpos({_BASE32_ALPHABET_SQL}, _g) + 31), 5)), '')"
)

_HASH_TEMPLATES: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    # `exp.MD5` is the node by which the parser represents TO_HEX(MD5(…)), so its result is hexadecimal text.
    exp.MD5: "md5({0})",
    exp.MD5Digest: "unhex(md5({0}))",
    exp.SHA1Digest: "unhex(sha1({0}))",
    exp.SHA: "unhex(sha1({0}))",
    exp.LowerHex: "lower(hex({0}))",
    # If FROM_HEX gets an odd number of digits, a zero is added in front of them.
    exp.Unhex: CheckedTemplate(
        "NOT regexp_full_match(@a, '[0-9a-fA-F]*')", "unhex(CASE WHEN length(@a) % 2 = 1 THEN '0' || @a ELSE @a END)"
    ),
    exp.FarmFingerprint: CheckedTemplate(f"length(hex(@a)) > {2 * MAX_FINGERPRINT_BYTES}", FARM_FINGERPRINT_SQL),
    exp.ToBase64: "to_base64({0})",
    exp.FromBase64: "from_base64(@a)",
    # In Base32, each letter encodes five bits. The result is padded to a multiple of eight letters.
    exp.ToBase32: (
        "CASE WHEN octet_length(@a::BLOB) = 0 THEN ''"
        f" ELSE rpad({_BASE32_LETTERS_SQL}, ((octet_length(@a::BLOB) + 4) // 5 * 8)::INT, '=') END"
    ),
    exp.FromBase32: CheckedTemplate(
        "@a <> '' AND NOT (regexp_full_match(@a, '[A-Z2-7]*=*') AND length(@a) % 8 = 0)",
        f"CASE WHEN @a = '' THEN ''::BLOB ELSE unbin(left({_BASE32_DECODED_BITS_SQL}, (length(rtrim(@a, '=')) * 5 // 8 * 8)::INT)) END",
    ),
}


def _translate_sha2(node: exp.Expr) -> exp.Expr:
    bits, value = constant_int(node.args.get("length")) or 256, convert_variant_to_text(node.this)
    if bits == 256:
        return fragment_node("unhex(sha256({0}))", value)
    if bits != 512:
        raise_unsupported(node, f"SHA{bits}")
    too_long = f"SHA512 of more than {MAX_SHA512_BYTES} bytes of a column"
    return fill_template(fail_if_sql(node, f"length(hex(@a)) > {2 * MAX_SHA512_BYTES}", too_long, SHA512_SQL), value)


HASH_RULES = RuleSet(
    by_node_class={
        **rules_from_templates(COMMON_SQL, HASH_FUNCTIONS, _HASH_TEMPLATES).by_node_class,
        exp.SHA2Digest: _translate_sha2,
    },
    by_node_class_before_children={
        exp.SHA2Digest: _translate_sha512_of_literal,
        exp.FarmFingerprint: _compile_time_rule(farm_fingerprint),
    },
)


_IS_IPV4_SQL: Final = r"regexp_full_match(@a, '(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3,3}')"
_IPV4_TO_HEX_SQL: Final = (
    "array_to_string(list_transform(string_split(@s, '.'), lambda _o: printf('%02X', try_cast(_o AS INT))), '')"
)

# The following SQL parses the text of an IPv6 address. If the text ends with an IPv4 address, this is replaced by two
# groups. `::` is replaced by as many zero groups as are missing.
_IPV4_TAIL_SQL: Final = r"regexp_extract(@a, '(\d{1,3}(\.\d{1,3}){3,3})$', 1)"
_IPV6_WITHOUT_IPV4_TAIL_SQL: Final = (
    f"CASE WHEN {_IPV4_TAIL_SQL} = '' THEN @a ELSE left(@a, length(@a) - length({_IPV4_TAIL_SQL})) || "
    f"left({_IPV4_TO_HEX_SQL.replace('@s', _IPV4_TAIL_SQL)}, 4) || ':' || right({_IPV4_TO_HEX_SQL.replace('@s', _IPV4_TAIL_SQL)}, 4) END"
)
_PADDED_IPV6_GROUPS_SQL: Final = (
    "CASE WHEN @p = '' THEN '' ELSE array_to_string(list_transform(string_split(@p, ':'),"
    " lambda _g: lpad(upper(_g), 4, '0')), '') END"
)


def _ip_from_string_rule(*, safe: bool) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        failure = "NULL" if safe else failure_sql(node, "Invalid IP address")
        left = _PADDED_IPV6_GROUPS_SQL.replace("@p", "string_split(@b, '::')[1]")
        right = _PADDED_IPV6_GROUPS_SQL.replace("@p", "coalesce(string_split(@b, '::')[2], '')")
        hex_text = f"rpad({left}, CAST(32 - length({right}) AS INT), '0') || {right}"
        v6 = r"regexp_full_match(@b, '(?i)[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7,7}|"
        v6 += r"((?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?)::((?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?)')"
        v6 += f" AND length({hex_text}) = 32"
        body = f"CASE WHEN @a IS NULL THEN NULL WHEN {_IS_IPV4_SQL} THEN unhex({_IPV4_TO_HEX_SQL.replace('@s', '@a')})"
        body += f" WHEN {v6} THEN unhex({hex_text}) ELSE {failure} END"
        value = convert_variant_to_text(node.expressions[0])
        return fill_template(body, value, fill_template(_IPV6_WITHOUT_IPV4_TAIL_SQL, copy_tree(value)))

    return rule


_HEX_TO_IPV4_SQL: Final = (
    "array_to_string(list_transform(regexp_extract_all(@a, '..'), lambda _p: CAST('0x' || _p AS INT)::VARCHAR), '.')"
)
_HEX_TO_IPV6_SQL: Final = (
    "array_to_string(list_transform(regexp_extract_all(lower(@a), '....'),"
    " lambda _p: coalesce(nullif(ltrim(_p, '0'), ''), '0')), ':')"
)
# Branches of a CASE. Each branch replaces a run of zero groups of a certain length by `::`. The branch for the longest
# run comes first.
_SHORTENED_IPV6_BRANCHES_SQL: Final = "".join(
    rf" WHEN regexp_matches({_HEX_TO_IPV6_SQL}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)')"
    rf" THEN regexp_replace({_HEX_TO_IPV6_SQL}, '(^|:)0(:0){{{count - 1},{count - 1}}}(:|$)', '::')"
    for count in range(8, 1, -1)
)
_IS_IPV4_MAPPED_SQL: Final = "starts_with(@a, '00000000000000000000FFFF')"
_NET_MASK_BOUNDARY_DIGIT_SQL: Final = "CASE @b % 4 WHEN 0 THEN '' WHEN 1 THEN '8' WHEN 2 THEN 'C' ELSE 'E' END"
_PREFIX_BOUNDARY_DIGIT_SQL: Final = "CAST('0x' || substring(@a, @b // 4 + 1, 1) AS INT)"
_MASKED_PREFIX_BOUNDARY_DIGIT_SQL: Final = (
    f"CASE WHEN @b % 4 = 0 THEN '' ELSE printf('%X', {_PREFIX_BOUNDARY_DIGIT_SQL} & (15 << (4 - @b % 4)::INT)) END"
)
_URL_HOST_PATTERN: Final = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^:/?#\s]*)"
_BARE_HOST_PATTERN: Final = r"^\s*(?:[a-zA-Z0-9._~%!$&''()*+,;=-]*@)?([^:/?#\s@]+\.[^:/?#\s@]+)(?:[:/?#].*)?\s*$"

_NET_TEMPLATES: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    "NET.IP_TO_STRING": TransformedArgumentTemplate(
        "hex({0})",
        CheckedTemplate(
            "length(@a) NOT IN (8, 32)",
            f"CASE WHEN @a IS NULL THEN NULL WHEN length(@a) = 8 THEN {_HEX_TO_IPV4_SQL} WHEN {_IS_IPV4_MAPPED_SQL}"
            f" THEN '::ffff:' || {_HEX_TO_IPV4_SQL.replace('@a', 'right(@a, 8)')}{_SHORTENED_IPV6_BRANCHES_SQL} ELSE {_HEX_TO_IPV6_SQL} END",
        ),
    ),
    "NET.IP_NET_MASK": CheckedTemplate(
        "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8",
        f"unhex(rpad(repeat('F', @checked // 4) || {_NET_MASK_BOUNDARY_DIGIT_SQL}, CAST(@a * 2 AS INT), '0'))",
        "@b",
    ),
    "NET.IP_TRUNC": TransformedArgumentTemplate(
        "hex({0})",
        CheckedTemplate(
            "length(@a) NOT IN (8, 32) OR @b < 0 OR @b > length(@a) * 4",
            f"unhex(rpad(left(@a, @b // 4) || {_MASKED_PREFIX_BOUNDARY_DIGIT_SQL}, CAST(length(@a) AS INT), '0'))",
        ),
    ),
    "NET.IPV4_FROM_INT64": "unhex(printf('%08X', CASE WHEN @a < 0 THEN @a + 4294967296 ELSE @a END))",
    "NET.IPV4_TO_INT64": TransformedArgumentTemplate(
        "hex({0})", CheckedTemplate("length(@a) <> 8", "CAST('0x' || @a AS BIGINT)")
    ),
    # NET.HOST returns the host as it is written, without user and port, and without unmatched brackets.
    "NET.HOST": (
        f"coalesce(nullif(regexp_extract(@a, '{_URL_HOST_PATTERN}', 1), ''), nullif(regexp_extract(@a, '{_BARE_HOST_PATTERN}', 1), ''))"
    ),
}

NET_RULES = RuleSet(
    by_node_class_before_children={exp.NetFunc: as_net_call},
    by_function_name={
        **rules_from_templates(COMMON_SQL, NET_FUNCTIONS, _NET_TEMPLATES).by_function_name,
        "NET.IP_FROM_STRING": _ip_from_string_rule(safe=False),
        "NET.SAFE_IP_FROM_STRING": _ip_from_string_rule(safe=True),
        **dict.fromkeys(("NET.REG_DOMAIN", "NET.PUBLIC_SUFFIX"), refuse_public_suffix_function),
    },
)
