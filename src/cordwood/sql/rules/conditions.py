"""Comparisons and conditions: events' values among typed ones, and SAFE."""

import msgspec
from sqlglot import exp

from cordwood.model.datatype import NUMBERS, Kind
from cordwood.sql.datatypes import VARIANT, kind_of, typed_as
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import mark_safe
from cordwood.sql.rules.vocabulary import Vocabulary


class Conditions(msgspec.Struct, frozen=True):
    """The parts of the rules of conditions that only differ in the engines' words."""

    words: Vocabulary

    def boolean(self, condition: exp.Expr) -> exp.Expr:
        return self.words.read_as(condition, Kind.BOOL) if kind_of(condition) is Kind.VARIANT else condition

    def with_boolean_operands(self, node: exp.Expr) -> exp.Expr:
        for key in ("this", "expression"):
            part = node.args.get(key)
            if isinstance(part, exp.Expr):
                node.set(key, self.boolean(part))
        return node

    def in_events(self, node: exp.Expr, kind: Kind) -> exp.Expr:
        """Lower IN over a query whose column is of events' values."""
        column = typed_as(fragment("_c"), VARIANT)
        value, item = self.words.read_as(node.this, kind), self.words.read_as(column, kind)
        return fragment("{0} IN (SELECT {1} FROM {2} AS _q(_c))", value, item, node.args["query"])


def number_kind(kind: Kind) -> Kind:
    """Return the type as which an event's value is compared with a value of this type."""
    return Kind.FLOAT64 if kind in NUMBERS else kind


def mark_argument_safe(node: exp.Expr) -> exp.Expr:
    """Mark the function inside of SAFE before it is lowered."""
    mark_safe(node.this)
    return node
