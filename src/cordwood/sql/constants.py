"""Compile-time constants: the values of literals."""

from typing import Final

from sqlglot import exp

from cordwood.sql.digits import whole

# The metadata key under which a lowered literal keeps its value.
CONSTANT: Final = "constant"


def constant(node: exp.Expr | None) -> str | int | float | bool | None:
    """Return the value of a literal; None for anything else."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Neg):
        inner = constant(node.this)
        return -inner if isinstance(inner, (int, float)) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return _literal_value(node) if node is not None else None


def is_small(node: exp.Expr | None) -> bool:
    """Return whether it is a constant integer far from the ends of INT64."""
    value = constant(node)
    return isinstance(value, int) and abs(value) < 2**31


def _literal_value(node: exp.Expr) -> str | int | float | None:
    kept: str | int | float | None = node.meta_get(CONSTANT)
    if isinstance(node, exp.RawString):
        return str(node.this)
    if kept is not None or not isinstance(node, exp.Literal):
        return kept
    if node.is_string:
        return str(node.this)
    return _whole(str(node.this)) if is_whole(node) else float(node.this)


def _whole(spelled: str) -> int:
    return int(spelled, 16) if spelled.lower().startswith("0x") else whole(spelled)


def is_whole(node: exp.Expr) -> bool:
    spelled = str(node.this).lower()
    return spelled.isdecimal() or spelled.startswith("0x")


def constant_text(node: exp.Expr | None) -> str | None:
    value = constant(node)
    return value if isinstance(value, str) else None


def constant_int(node: exp.Expr | None) -> int | None:
    value = constant(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_null(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Null)


def constant_bytes(node: exp.Expr | None) -> bytes | None:
    """Return the value of a bytes literal, or of a text literal in UTF-8."""
    if isinstance(node, exp.ByteString):
        # Sqlglot stores bytes as text of one character per byte, with escapes decoded.
        return str(node.this).encode("latin-1")
    told = constant_text(node)
    return told.encode() if told is not None else None
