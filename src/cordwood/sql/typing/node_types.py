"""Storage of a node's type in its metadata, so that copies keep it."""

from typing import Final, TypeVar

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind

_KEY: Final = "datatype"

Node = TypeVar("Node", bound=exp.Expr)


def datatype_of(node: exp.Expr | None) -> Datatype | None:
    """Return the type that `annotate` stored; None if it is unknown."""
    return node.meta_get(_KEY) if node is not None else None


def kind_of(node: exp.Expr | None) -> Kind | None:
    datatype = datatype_of(node)
    return datatype.kind if datatype else None


def typed_as(node: Node, datatype: Datatype | None) -> Node:
    if datatype is not None:
        node.meta[_KEY] = datatype
    return node


def inherit(node: Node, origin: exp.Expr) -> Node:
    """Copy the metadata, such as type and position, of the node that this one replaces."""
    if origin is not node:
        for key, value in origin.meta.items():
            node.meta.setdefault(key, value)
    return node
