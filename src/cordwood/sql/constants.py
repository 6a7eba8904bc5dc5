"""Compile-time constants: the values of literals."""

from typing import Final

from sqlglot import exp

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
    stored: str | int | float | None = node.meta_get(CONSTANT)
    if isinstance(node, exp.RawString):
        return str(node.this)
    if stored is not None or not isinstance(node, exp.Literal):
        return stored
    if node.is_string:
        return str(node.this)
    return _integer_value(str(node.this)) if is_integer_literal(node) else float(node.this)


def _integer_value(digits: str) -> int:
    return int(digits, 16) if digits.lower().startswith("0x") else parse_digits(digits)


# More digits than any engine's integers have, and fewer than Python refuses.
_MAX_DIGITS: Final = 100


def parse_digits(digits: str) -> int:
    """Return the number that decimal digits spell; for more than a hundred digits, the least number of that length."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def is_integer_literal(node: exp.Expr) -> bool:
    digits = str(node.this).lower()
    return digits.isdecimal() or digits.startswith("0x")


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
    text = constant_text(node)
    return text.encode() if text is not None else None
