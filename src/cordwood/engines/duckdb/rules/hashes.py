"""Digests and encodings of bytes."""

from collections.abc import Callable
from hashlib import sha512
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import attempt, fail, once
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.fingerprints import farm_fingerprint
from cordwood.sql.constants import constant_bytes, constant_int, is_null
from cordwood.sql.fragment import data_part, fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import datatype_of, kind_of, typed_as


def _input(node: exp.Expr) -> exp.Expr:
    return read_as(node.this, Kind.STRING) if kind_of(node.this) is Kind.VARIANT else node.this


def _digest(name: str) -> Rule:
    return lambda node: fragment(f"unhex({name}({{0}}))", _input(node))


def _sha2(node: exp.Expr) -> exp.Expr:
    if constant_int(node.args.get("length")) != 256:
        unsupported(node, "SHA512")
    return fragment("unhex(sha256({0}))", _input(node))


def _md5_text(node: exp.Expr) -> exp.Expr:
    """Lower TO_HEX(MD5(…)), which the parser represents as one node."""
    return fragment("md5({0})", _input(node))


def _hex(node: exp.Expr) -> exp.Expr:
    return fragment("lower(hex({0}))", read_as(node.this, Kind.BYTES))


def _unhex(node: exp.Expr) -> exp.Expr:
    """Lower FROM_HEX; an odd number of digits is padded with a zero in front."""
    failure = fail(node, "Failed to decode invalid hexadecimal string")
    padded = "CASE WHEN length(@a) % 2 = 1 THEN '0' || @a ELSE @a END"
    valid = "regexp_full_match(@a, '[0-9a-fA-F]*')"
    return once(f"CASE WHEN {valid} THEN unhex({padded}) WHEN @a IS NOT NULL THEN {failure} END", _input(node))


def _to_base64(node: exp.Expr) -> exp.Expr:
    return fragment("to_base64({0})", read_as(node.this, Kind.BYTES))


def _from_base64(node: exp.Expr) -> exp.Expr:
    return attempt(node, "from_base64(@a)", _input(node))


_BASE32: Final = "'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'"


def _to_base32(node: exp.Expr) -> exp.Expr:
    """Lower TO_BASE32: five bits per letter, padded to a multiple of eight letters."""
    bit_groups = "regexp_extract_all(rpad(nullif(@a::BLOB, ''::BLOB)::BIT::VARCHAR, ((octet_length(@a::BLOB) * 8 + 4) // 5 * 5)::INT, '0'), '.....')"
    letters = f"array_to_string(list_transform({bit_groups}, lambda _g: {_BASE32}[('0b' || _g)::INT + 1]), '')"
    padded = f"rpad({letters}, ((octet_length(@a::BLOB) + 4) // 5 * 8)::INT, '=')"
    return once(f"CASE WHEN octet_length(@a::BLOB) = 0 THEN '' ELSE {padded} END", read_as(node.this, Kind.BYTES))


def _from_base32(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "Failed to decode invalid base32 string")
    valid = "regexp_full_match(@a, '[A-Z2-7]*=*') AND length(@a) % 8 = 0"
    bit_groups = (
        f"list_transform(string_split(rtrim(@a, '='), ''), lambda _g: right(bin(strpos({_BASE32}, _g) + 31), 5))"
    )
    bytes_sql = "unbin(left(array_to_string(@f, ''), (length(rtrim(@a, '=')) * 5 // 8 * 8)::INT))".replace(
        "@f", bit_groups
    )
    decoded = f"CASE WHEN @a = '' THEN ''::BLOB WHEN {valid} THEN {bytes_sql} WHEN @a IS NOT NULL THEN {failure} END"
    return once(decoded, _input(node))


def _unsupported(name: str) -> Rule:
    return lambda node: unsupported(node, name)


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
        _computed_for_literal(lambda data: sha512(data).digest())(node)
        if constant_int(node.args.get("length")) == 512
        else node
    )


RULES = RuleSet(
    nodes={
        exp.MD5Digest: _digest("md5"),
        exp.SHA1Digest: _digest("sha1"),
        exp.SHA: _digest("sha1"),
        exp.SHA2Digest: _sha2,
        exp.MD5: _md5_text,
        exp.LowerHex: _hex,
        exp.Unhex: _unhex,
        exp.ToBase64: _to_base64,
        exp.FromBase64: _from_base64,
        exp.ToBase32: _to_base32,
        exp.FromBase32: _from_base32,
        exp.FarmFingerprint: _unsupported("FARM_FINGERPRINT"),
    },
    before_children={
        exp.SHA2Digest: _sha512,
        exp.FarmFingerprint: _computed_for_literal(farm_fingerprint),
    },
)
