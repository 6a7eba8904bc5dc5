"""Literals: INT64 where ClickHouse would choose the narrowest type."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.constants import CONSTANT
from cordwood.sql.fragment import fragment
from cordwood.sql.rules.conversions import Literals, signed_parent

# Inside these an integer is a position or a count, which must be a plain literal.
_UNTYPED_PARENTS: Final = (
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.TableSample, exp.Tuple, exp.Ntile, exp.Lag, exp.Lead, exp.NthValue),
)


def _integer(node: exp.Expr, value: int) -> exp.Expr:
    is_plain = isinstance(signed_parent(node), _UNTYPED_PARENTS)
    return exp.Literal.number(str(value)) if is_plain else fragment(f"toInt64({value})")


def _fraction(node: exp.Expr) -> exp.Expr:
    return fragment("toFloat64({0})", copied(node))


def _bytes(data: exp.Expr, text: str) -> exp.Expr:
    lowered = fragment("{0}", data)
    lowered.meta[CONSTANT] = text
    return lowered


RULES = Literals(_integer, _fraction, _bytes).rules()
