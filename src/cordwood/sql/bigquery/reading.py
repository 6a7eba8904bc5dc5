"""Coercion of values to required types, by an engine's table of supported conversions."""

from collections.abc import Callable, Mapping

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.typing import inherit, kind_of, typed_as

Reader = Callable[[exp.Expr], exp.Expr]
Readers = Mapping[tuple[Kind, Kind], Reader]


def read_by(readers: Readers, node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return the node converted to that type; unchanged if it has it, is of unknown type, or cannot be converted."""
    own = kind_of(node)
    if own is None or own is kind or isinstance(node, exp.Null):
        return node
    reader = readers.get((own, kind))
    return node if reader is None else typed_as(inherit(reader(node), node), Datatype(kind))
