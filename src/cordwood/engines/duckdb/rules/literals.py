"""Literals: INT64 and FLOAT64 where DuckDB would choose INTEGER and DECIMAL, and bytes."""

from typing import Final

from sqlglot import exp

from cordwood.sql.constants import CONSTANT, constant, is_integer_literal
from cordwood.sql.fragment import data_part, fragment, text_part
from cordwood.sql.lowering import RuleSet

_INT32: Final = 2**31


def _literal(node: exp.Expr) -> exp.Expr:
    lowered = (
        text_part(str(node.this)) if node.is_string else _integer(node) if is_integer_literal(node) else _fraction(node)
    )
    if not isinstance(lowered, exp.Literal):
        lowered.meta[CONSTANT] = constant(node)
    return lowered


def _fraction(node: exp.Expr) -> exp.Expr:
    literal_text = str(node.this).lower()
    return fragment("{0}", exp.Literal.number(literal_text if "e" in literal_text else f"{literal_text}e0"))


def _integer(node: exp.Expr) -> exp.Expr:
    value = constant(node)
    literal = exp.Literal.number(str(value))
    return fragment(f"{value}::BIGINT") if _sets_type(node) and abs(int(str(value))) < _INT32 else literal


# Inside these an integer takes the type of the other operand, or is a count or position.
_UNTYPED_PARENTS: Final = (
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.In, exp.Bracket, exp.Interval, exp.Round, exp.Trunc, exp.DateFromParts, exp.TimestampFromParts),
    *(exp.TimeFromParts, exp.Left, exp.Right, exp.Pad, exp.Repeat, exp.Substring, exp.ApproxQuantiles, exp.ApproxTopK),
    *(exp.Lag, exp.Lead, exp.NthValue, exp.Ntile, exp.DateAdd, exp.DateSub, exp.Order, exp.StrToDate, exp.StrToTime),
    *(exp.ParseDatetime, exp.RegexpInstr, exp.SHA2Digest, exp.TableSample),
)


def _sets_type(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    if isinstance(parent, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)):
        return False
    if isinstance(parent, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv)):
        return isinstance(parent.this, exp.Literal) or not isinstance(parent.expression, exp.Literal)
    return not isinstance(parent, _UNTYPED_PARENTS)


def _bytes(node: exp.Expr) -> exp.Expr:
    """Lower a bytes literal, which the parser returns as text with its escapes decoded."""
    literal_text = str(node.this)
    raw = literal_text.encode("latin-1") if all(ord(char) < 256 for char in literal_text) else literal_text.encode()
    return fragment("{0}::BLOB", data_part(raw))


def _raw(node: exp.Expr) -> exp.Expr:
    return _literal(exp.Literal.string(str(node.this)))


RULES = RuleSet(nodes={exp.Literal: _literal, exp.ByteString: _bytes, exp.RawString: _raw})
