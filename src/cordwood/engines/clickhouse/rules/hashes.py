"""Digests and encodings of bytes; random identifiers."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if, once
from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported


def _from_template(template: str) -> Rule:
    return lambda node: fragment(template, as_text(node.this))


def _sha2(node: exp.Expr) -> exp.Expr:
    bits = constant_int(node.args.get("length")) or 256
    if bits not in (256, 512):
        unsupported(node, f"SHA{bits}")
    return fragment(f"toString(SHA{bits}({{0}}))", as_text(node.this))


def _unhex(node: exp.Expr) -> exp.Expr:
    is_invalid = "NOT match(@a, '^[0-9a-fA-F]*$')"
    return once(
        fail_if(node, is_invalid, "Failed to decode invalid hexadecimal string", "unhex(@a)"), as_text(node.this)
    )


def _decode(base: int) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        decoded = f"tryBase{base}Decode(@a)"
        is_invalid = f"(@a != '' AND {decoded} = '')"
        return once(
            fail_if(node, is_invalid, f"Failed to decode invalid base{base} string", decoded), as_text(node.this)
        )

    return rule


def _fingerprint(node: exp.Expr) -> exp.Expr:
    return fragment("reinterpretAsInt64(farmFingerprint64({0}))", as_text(node.expressions[0]))


def _uuid(node: exp.Expr) -> exp.Expr:
    del node
    return fragment("toString(generateUUIDv4())")


RULES = RuleSet(
    nodes={
        exp.MD5: _from_template("lower(hex(MD5({0})))"),
        exp.MD5Digest: _from_template("toString(MD5({0}))"),
        exp.SHA: _from_template("toString(SHA1({0}))"),
        exp.SHA1Digest: _from_template("toString(SHA1({0}))"),
        exp.SHA2: _sha2,
        exp.SHA2Digest: _sha2,
        exp.LowerHex: _from_template("lower(hex({0}))"),
        exp.Hex: _from_template("hex({0})"),
        exp.Unhex: _unhex,
        exp.ToBase64: _from_template("base64Encode({0})"),
        exp.FromBase64: _decode(64),
        exp.ToBase32: _from_template("base32Encode({0})"),
        exp.FromBase32: _decode(32),
        exp.FarmFingerprint: _fingerprint,
        exp.Uuid: _uuid,
    }
)
