"""Literals: texts and bytes with their escapes decoded, and numbers of BigQuery's types."""

from collections.abc import Callable

import msgspec
from sqlglot import exp

from cordwood.sql.constants import CONSTANT, constant, is_integer_literal
from cordwood.sql.fragment import data_part, text_part
from cordwood.sql.lowering import RuleSet
from cordwood.sql.rules.vocabulary import Conversion


class Literals(msgspec.Struct, frozen=True):
    """The rules of literals: `integer` takes a literal and its value, and `fraction` a literal.

    `data` takes bytes as a part, and their text with one character per byte.
    """

    integer: Callable[[exp.Expr, int], exp.Expr]
    fraction: Conversion
    data: Callable[[exp.Expr, str], exp.Expr]

    def _literal(self, node: exp.Expr) -> exp.Expr:
        value = constant(node)
        if node.is_string:
            lowered = text_part(str(node.this))
        else:
            lowered = self.integer(node, int(str(value))) if is_integer_literal(node) else self.fraction(node)
        if not isinstance(lowered, exp.Literal):
            lowered.meta[CONSTANT] = value
        return lowered

    def _bytes(self, node: exp.Expr) -> exp.Expr:
        """Lower a bytes literal, which the parser returns as text with its escapes decoded."""
        text = str(node.this)
        raw = text.encode("latin-1") if all(ord(char) < 256 for char in text) else text.encode()
        return self.data(data_part(raw), text)

    def _raw(self, node: exp.Expr) -> exp.Expr:
        return self._literal(exp.Literal.string(str(node.this)))

    def rules(self) -> RuleSet:
        return RuleSet(nodes={exp.Literal: self._literal, exp.ByteString: self._bytes, exp.RawString: self._raw})


def signed_parent(node: exp.Expr) -> exp.Expr | None:
    """Return the node that has a literal as its argument, beyond its sign and parentheses."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    return parent
