"""Digests and encodings of bytes."""

from base64 import b32encode
from collections.abc import Callable
from hashlib import sha512

from sqlglot import exp

from cordwood.engines.duckdb.rules.reading import read_as
from cordwood.engines.duckdb.rules.words import attempt, fail, once
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.fingerprints import farm_fingerprint
from cordwood.sql.constants import constant_bytes, constant_int, is_null
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, Rule, unsupported
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
    """The parser's short word for TO_HEX(MD5(…))."""
    return fragment("md5({0})", _input(node))


def _hex(node: exp.Expr) -> exp.Expr:
    return fragment("lower(hex({0}))", read_as(node.this, Kind.BYTES))


def _unhex(node: exp.Expr) -> exp.Expr:
    """An odd number of digits has a zero before it."""
    bad = fail(node, "Failed to decode invalid hexadecimal string")
    padded = "CASE WHEN length(@a) % 2 = 1 THEN '0' || @a ELSE @a END"
    valid = "regexp_full_match(@a, '[0-9a-fA-F]*')"
    return once(f"CASE WHEN {valid} THEN unhex({padded}) WHEN @a IS NOT NULL THEN {bad} END", _input(node))


def _to_base64(node: exp.Expr) -> exp.Expr:
    return fragment("to_base64({0})", read_as(node.this, Kind.BYTES))


def _from_base64(node: exp.Expr) -> exp.Expr:
    return attempt(node, "from_base64(@a)", _input(node))


def _no(name: str) -> Rule:
    return lambda node: unsupported(node, name)


Known = Callable[[bytes], bytes | str | int]


def _known(function: Known) -> Rule:
    """What the engine cannot work out may yet be known before it runs: that of a literal."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = node.this or node.expressions[0]
        if is_null(argument.this if isinstance(argument, exp.Cast) else argument):
            return typed_as(fragment("NULL"), datatype_of(node))
        told = constant_bytes(argument)
        if told is None:
            return node
        return typed_as(_literal(function(told)), datatype_of(node))

    return rule


def _literal(value: bytes | str | int) -> exp.Expr:
    if isinstance(value, bytes):
        return fragment("'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB")
    return exp.Literal.string(value) if isinstance(value, str) else fragment(f"({value})::BIGINT")


def _sha512(node: exp.Expr) -> exp.Expr:
    return _known(lambda data: sha512(data).digest())(node) if constant_int(node.args.get("length")) == 512 else node


MEANING = Meaning(
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
        exp.ToBase32: _no("TO_BASE32"),
        exp.FromBase32: _no("FROM_BASE32"),
        exp.FarmFingerprint: _no("FARM_FINGERPRINT"),
    },
    first={
        exp.SHA2Digest: _sha512,
        exp.FarmFingerprint: _known(farm_fingerprint),
        exp.ToBase32: _known(lambda data: b32encode(data).decode()),
    },
)
