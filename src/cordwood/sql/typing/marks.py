"""Where a node's type is noted: in its meta, so that copies keep it."""

from typing import Final, TypeVar

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind

_KEY: Final = "datatype"

Node = TypeVar("Node", bound=exp.Expr)


def datatype_of(node: exp.Expr | None) -> Datatype | None:
    """What `annotate` noted; None where the type cannot be told."""
    return node.meta_get(_KEY) if node is not None else None


def kind_of(node: exp.Expr | None) -> Kind | None:
    datatype = datatype_of(node)
    return datatype.kind if datatype else None


def typed_as(node: Node, datatype: Datatype | None) -> Node:
    if datatype is not None:
        node.meta[_KEY] = datatype
    return node


def inherit(node: Node, origin: exp.Expr) -> Node:
    """Take over the type and the place of the node that this one stands for."""
    if origin is not node:
        for key, value in origin.meta.items():
            node.meta.setdefault(key, value)
    return node
