"""Digests and encodings of bytes."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules import fingerprints, sha512
from cordwood.engines.duckdb.rules.building_blocks import once
from cordwood.engines.duckdb.rules.strings import as_text
from cordwood.engines.duckdb.rules.words import WORDS, fail_if
from cordwood.sql.bigquery.fingerprints import farm_fingerprint
from cordwood.sql.constants import constant_bytes, constant_int, is_null
from cordwood.sql.datatypes import datatype_of, typed_as
from cordwood.sql.fragment import data_part, fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.rules.functions import HASHES, Checked, Key, Template, table_rules

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

_TEMPLATES: Final[Mapping[Key, Template]] = {
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
    exp.FarmFingerprint: Checked(f"length(hex(@a)) > {2 * fingerprints.MAX_BYTES}", fingerprints.FINGERPRINT),
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
    too_long = f"SHA512 of more than {sha512.MAX_BYTES} bytes of a column"
    return once(fail_if(node, f"length(hex(@a)) > {2 * sha512.MAX_BYTES}", too_long, sha512.SHA512), value)


RULES = RuleSet(
    nodes={
        **table_rules(WORDS, HASHES, _TEMPLATES).nodes,
        exp.SHA2Digest: _sha2,
    },
    before_children={
        exp.SHA2Digest: _sha512,
        exp.FarmFingerprint: _computed_for_literal(farm_fingerprint),
    },
)
