"""Structs: what stands in them, what their fields are called, and which lists in brackets are none."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype

_LISTS: Final = (exp.Any, exp.All, exp.GroupingSets, exp.Cube, exp.Rollup, exp.Pivot, exp.Group)


def is_list(node: exp.Expr) -> bool:
    """Whether a bracketed list is no struct: the list of IN, of a pivot or of a grouping."""
    return isinstance(node.parent, _LISTS)


def field_values(node: exp.Expr) -> list[exp.Expr]:
    """The values of STRUCT(…), without what they are called."""
    return [
        item.expression if isinstance(item, exp.PropertyEQ) else item.this if isinstance(item, exp.Alias) else item
        for item in node.expressions
    ]


def field_name(datatype: Datatype, at: int) -> str:
    """Fields without a name, and those whose name is taken, are named by their place."""
    names = [name.lower() for name, _ in datatype.fields]
    name = datatype.fields[at][0]
    if name and name.lower() not in names[:at]:
        return name
    placed = f"_field_{at + 1}"
    while placed in names:
        placed += "_"
    return placed
