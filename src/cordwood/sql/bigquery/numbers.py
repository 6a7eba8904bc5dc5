"""Numeric functions: ROUND's mode, the spellings that PARSE_NUMERIC accepts, and RANGE_BUCKET's boundaries."""

from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import EXACT
from cordwood.sql.constants import constant, constant_text
from cordwood.sql.lowering import unsupported
from cordwood.sql.typing import kind_of

_MODES = ("ROUND_HALF_AWAY_FROM_ZERO", "ROUND_HALF_EVEN")


def rounds_to_even(node: exp.Expr) -> bool:
    """Return whether ROUND rounds half to even; refuse a mode for values other than NUMERIC and BIGNUMERIC."""
    mode_argument = node.args.get("truncate")
    if mode_argument is None:
        return False
    mode = (constant_text(mode_argument) or "").upper()
    if mode not in _MODES:
        unsupported(node, f"ROUND other than by {' or '.join(_MODES)}")
    if kind_of(node.this) not in EXACT:
        unsupported(node, "ROUND by a mode of what is no NUMERIC")
    return mode == "ROUND_HALF_EVEN"


_NUMBER: Final = r"(,*\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?"

# Whitespace is allowed around the number and beside its sign, which may be trailing; commas before the point.
NUMERAL: Final = rf"\s*([+-]?\s*{_NUMBER}|{_NUMBER}\s*[+-])\s*"


def are_ascending(array: exp.Expr) -> bool:
    """Return whether the boundaries are ascending number literals; False also where that is not known."""
    values = [constant(item) for item in array.expressions] if isinstance(array, exp.Array) else [None]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))
