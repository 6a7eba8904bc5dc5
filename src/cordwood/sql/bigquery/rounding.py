"""ROUND's third argument: where a half goes."""

from sqlglot import exp

from cordwood.model.datatype import EXACT
from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import unsupported
from cordwood.sql.typing import kind_of

_MODES = ("ROUND_HALF_AWAY_FROM_ZERO", "ROUND_HALF_EVEN")


def rounds_to_even(node: exp.Expr) -> bool:
    """Only numbers whose halves are exact can be told how."""
    told = node.args.get("truncate")
    if told is None:
        return False
    mode = (constant_text(told) or "").upper()
    if mode not in _MODES:
        unsupported(node, f"ROUND other than by {' or '.join(_MODES)}")
    if kind_of(node.this) not in EXACT:
        unsupported(node, "ROUND by a mode of what is no NUMERIC")
    return mode == "ROUND_HALF_EVEN"
