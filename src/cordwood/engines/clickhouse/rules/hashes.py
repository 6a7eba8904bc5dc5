"""Digests and encodings of bytes; random identifiers."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.engines.clickhouse.rules.words import WORDS
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.rules.functions import HASHES, Checked, Key, Template, table_rules


def _sha2(node: exp.Expr) -> exp.Expr:
    bits = constant_int(node.args.get("length")) or 256
    if bits not in (256, 512):
        unsupported(node, f"SHA{bits}")
    return fragment(f"toString(SHA{bits}({{0}}))", as_text(node.this))


def _decode(base: int) -> Checked:
    decoded = f"tryBase{base}Decode(@a)"
    return Checked(f"(@a != '' AND {decoded} = '')", decoded)


_TEMPLATES: Final[Mapping[Key, Template]] = {
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

RULES = RuleSet(nodes={**table_rules(WORDS, HASHES, _TEMPLATES).nodes, exp.SHA2: _sha2, exp.SHA2Digest: _sha2})
