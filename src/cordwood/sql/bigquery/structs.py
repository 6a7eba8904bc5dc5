"""Structs: field values and names, and parenthesised lists that are not structs."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype

_LISTS: Final = (exp.Any, exp.All, exp.GroupingSets, exp.Cube, exp.Rollup, exp.Pivot, exp.Group)


def is_list(node: exp.Expr) -> bool:
    """Return whether a parenthesised list is not a struct: the operand of IN, of a pivot or of a grouping."""
    return isinstance(node.parent, _LISTS)


def field_values(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of STRUCT(…) without their names."""
    return [
        item.expression if isinstance(item, exp.PropertyEQ) else item.this if isinstance(item, exp.Alias) else item
        for item in node.expressions
    ]


def field_name(datatype: Datatype, index: int) -> str:
    """Return the name of the struct's field at this position.

    Fields without a name, or with that of an earlier field, are named by position.
    """
    names = [name.lower() for name, _ in datatype.fields]
    name = datatype.fields[index][0]
    if name and name.lower() not in names[:index]:
        return name
    positional_name = f"_field_{index + 1}"
    while positional_name in names:
        positional_name += "_"
    return positional_name
