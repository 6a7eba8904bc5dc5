"""Compile-time constants: the values of literals in a tree."""

from typing import Final

from sqlglot import exp

# The metadata key under which a lowered literal keeps its value.
CONSTANT_KEY: Final = "constant"


def constant(node: exp.Expr | None) -> str | int | float | bool | None:
    """Return the value of a literal; None for any other node."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Neg):
        inner = constant(node.this)
        return -inner if isinstance(inner, (int, float)) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return _literal_value(node) if node is not None else None


def is_small_integer(node: exp.Expr | None) -> bool:
    """Return whether the node is a constant integer far from the bounds of INT64."""
    value = constant(node)
    return isinstance(value, int) and abs(value) < 2**31


def _literal_value(node: exp.Expr) -> str | int | float | None:
    stored: str | int | float | None = node.meta_get(CONSTANT_KEY)
    if isinstance(node, exp.RawString):
        return str(node.this)
    if stored is not None or not isinstance(node, exp.Literal):
        return stored
    if node.is_string:
        return str(node.this)
    return _integer_value(str(node.this)) if is_integer_literal(node) else float(node.this)


def _integer_value(digits: str) -> int:
    return int(digits, 16) if digits.lower().startswith("0x") else parse_digits(digits)


# More digits than any engine's integers have, but fewer than Python's limit for int().
_MAX_PARSED_DIGITS: Final = 100


def parse_digits(digits: str) -> int:
    """Return the number that decimal digits spell.

    For more than a hundred digits, return the smallest number of that length, which is out of range in any case.
    """
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_PARSED_DIGITS else 10**_MAX_PARSED_DIGITS


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
    """Return the value of a bytes literal, or the UTF-8 encoding of a text literal."""
    if isinstance(node, exp.ByteString):
        # sqlglot stores bytes as text with one character for each byte and with escapes decoded.
        return str(node.this).encode("latin-1")
    text = constant_text(node)
    return text.encode() if text is not None else None
