"""Literals: INT64 and FLOAT64 where DuckDB would choose INTEGER and DECIMAL, and bytes."""

from typing import Final

from sqlglot import exp

from cordwood.sql.fragment import fragment
from cordwood.sql.rules.conversions import Literals, signed_parent

_INT32: Final = 2**31
# Inside these an integer takes the type of the other operand, or is a count or position.
_UNTYPED_PARENTS: Final = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between),
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.In, exp.Bracket, exp.Interval, exp.Round, exp.Trunc, exp.DateFromParts, exp.TimestampFromParts),
    *(exp.TimeFromParts, exp.Left, exp.Right, exp.Pad, exp.Repeat, exp.Substring, exp.ApproxQuantiles, exp.ApproxTopK),
    *(exp.Lag, exp.Lead, exp.NthValue, exp.Ntile, exp.DateAdd, exp.DateSub, exp.Order, exp.StrToDate, exp.StrToTime),
    *(exp.ParseDatetime, exp.RegexpInstr, exp.SHA2Digest, exp.TableSample),
)


def _sets_type(node: exp.Expr) -> bool:
    parent = signed_parent(node)
    if isinstance(parent, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv)):
        return isinstance(parent.this, exp.Literal) or not isinstance(parent.expression, exp.Literal)
    return not isinstance(parent, _UNTYPED_PARENTS)


def _integer(node: exp.Expr, value: int) -> exp.Expr:
    has_type = _sets_type(node) and abs(value) < _INT32
    return fragment(f"{value}::BIGINT") if has_type else exp.Literal.number(str(value))


def _fraction(node: exp.Expr) -> exp.Expr:
    digits = str(node.this).lower()
    return fragment("{0}", exp.Literal.number(digits if "e" in digits else f"{digits}e0"))


RULES = Literals(_integer, _fraction, data=lambda data, _: fragment("{0}::BLOB", data)).rules()
