"""Literals: INT64 where ClickHouse would choose the narrowest type; texts and bytes with their escapes decoded."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.constants import CONSTANT, constant, is_integer_literal
from cordwood.sql.fragment import data_part, fragment, text_part
from cordwood.sql.lowering import RuleSet


def _literal(node: exp.Expr) -> exp.Expr:
    if node.is_string:
        lowered = text_part(str(node.this))
    elif is_integer_literal(node):
        lowered = _integer(node)
    else:
        lowered = fragment("toFloat64({0})", copied(node))
    if not isinstance(lowered, exp.Literal):
        lowered.meta[CONSTANT] = constant(node)
    return lowered


def _integer(node: exp.Expr) -> exp.Expr:
    return fragment(f"toInt64({constant(node)})") if _sets_type(node) else exp.Literal.number(str(constant(node)))


# Inside these an integer is a position or a count, which must be a plain literal.
_UNTYPED_PARENTS: Final = (
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.TableSample, exp.Tuple, exp.Ntile, exp.Lag, exp.Lead, exp.NthValue),
)


def _sets_type(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    return not isinstance(parent, _UNTYPED_PARENTS)


def _bytes(node: exp.Expr) -> exp.Expr:
    """Lower a bytes literal, which sqlglot returns as text with its escapes decoded."""
    literal_text = str(node.this)
    raw = literal_text.encode("latin-1") if all(ord(char) < 256 for char in literal_text) else literal_text.encode()
    lowered = fragment("{0}", data_part(raw))
    lowered.meta[CONSTANT] = literal_text
    return lowered


def _raw(node: exp.Expr) -> exp.Expr:
    return _literal(exp.Literal.string(str(node.this)))


RULES = RuleSet(nodes={exp.Literal: _literal, exp.ByteString: _bytes, exp.RawString: _raw})
