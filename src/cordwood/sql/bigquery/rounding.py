"""The rounding mode, ROUND's third argument."""

from sqlglot import exp

from cordwood.model.datatype import EXACT
from cordwood.sql.constants import constant_text
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
