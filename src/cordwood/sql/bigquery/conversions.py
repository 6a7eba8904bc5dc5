"""Coercion of values to required types, by an engine's table of supported conversions."""

from collections.abc import Callable, Mapping

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.typing import inherit, kind_of, typed_as

Conversion = Callable[[exp.Expr], exp.Expr]
Conversions = Mapping[tuple[Kind, Kind], Conversion]


def convert_to(conversions: Conversions, node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return the node converted to that type; unchanged if it has it, is of unknown type, or cannot be converted."""
    current_kind = kind_of(node)
    if current_kind is None or current_kind is kind or isinstance(node, exp.Null):
        return node
    conversion = conversions.get((current_kind, kind))
    return node if conversion is None else typed_as(inherit(conversion(node), node), Datatype(kind))
