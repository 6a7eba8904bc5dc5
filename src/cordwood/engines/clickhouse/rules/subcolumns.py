"""Paths of events that are stored as subcolumns: reading them, and converting them to events' values."""

from enum import StrEnum
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.coercions import attached_text, event_text_of, with_text
from cordwood.engines.clickhouse.tables import OBJECT_PATHS, PATHS
from cordwood.model.datatype import Kind
from cordwood.model.event import format_path
from cordwood.sql.fragment import fragment, name_part, text_part
from cordwood.sql.grouping import grouping_keys, selected_value
from cordwood.sql.lowering import RuleSet
from cordwood.sql.operations import Operation, operation_node, operation_of
from cordwood.sql.typing import inherit, kind_of


class ReadMode(StrEnum):
    """How a path's value is passed from its subcolumn to its reader.

    TEXT: a text as it is. PLAIN: a number or boolean as its text, which is also its JSON. JSON: either, as JSON.
    RECORD: whether there is an object.
    """

    TEXT = "text"
    PLAIN = "plain"
    JSON = "json"
    RECORD = "record"


class Stored(Operation, frozen=True):
    """A read of a path from a subcolumn of the table's column, which is the operand."""

    mode: ReadMode
    steps: tuple[str, ...]


class EventOf(Operation, frozen=True):
    """An expression for the value of a stored path in one event; the operand is the read that it was made from."""

    mode: ReadMode


def stored_path(table: str, column: str, steps: tuple[str, ...], mode: ReadMode) -> exp.Expr:
    """Return the read of a path at the table that stores it."""
    name = OBJECT_PATHS if mode is ReadMode.RECORD else PATHS[column]
    column_read = exp.column(name, table, quoted=True)
    path = steps if mode is not ReadMode.RECORD or column == "extras" else (column, *steps)
    return operation_node(Stored(mode, path), column_read)


def event_of(value: exp.Expr, mode: ReadMode, origin: exp.Expr) -> exp.Expr:
    """Return the value that replaces the origin, with the same type."""
    return inherit(operation_node(EventOf(mode), value), origin)


_READ_TEMPLATES: Final = {
    ReadMode.TEXT: "{0}%s.:String",
    ReadMode.PLAIN: "CAST({0}%s, 'Nullable(String)')",
    ReadMode.JSON: "nullIf(toJSONString({0}%s), 'null')",
}


def _stored(node: exp.Expr) -> exp.Expr:
    (column,), operation_ = node.expressions, operation_of(node, Stored)
    if operation_ is None:
        raise ValueError("no stored path")
    if operation_.mode is ReadMode.RECORD:
        return fragment("(position({0}, {1}) > 0)", column, text_part(format_path(operation_.steps)))
    path_template = "".join(f".{{{index}}}" for index in range(1, len(operation_.steps) + 1))
    return fragment(
        _READ_TEMPLATES[operation_.mode] % path_template,
        column,
        *(name_part(step, is_verbatim=True) for step in operation_.steps),
    )


def _event_of(node: exp.Expr) -> exp.Expr:
    (value,), operation_ = node.expressions, operation_of(node, EventOf)
    is_text = kind_of(node) is Kind.STRING
    match None if operation_ is None else operation_.mode:
        case ReadMode.TEXT if not is_text:
            return with_text(fragment("nullIf(toJSONString({0}), 'null')", value), value)
        case ReadMode.PLAIN if not is_text:
            return with_text(fragment("({0})", value), value)
        case ReadMode.JSON if is_text:
            return fragment(event_text_of("{0}"), value)
        case ReadMode.RECORD:
            return fragment("ifNull({0}, false)", value)
    return fragment("({0})", value)


def group_by_attached_texts(select: exp.Expr) -> None:
    """Group by the texts from which events' values were made, so that the query may read both."""
    group = select.args.get("group")
    for key in list(grouping_keys(group)) if group is not None else ():
        text = attached_text(selected_value(select, key))
        if text is not None:
            key.replace(text)


RULES = RuleSet(operations={Stored: _stored, EventOf: _event_of})
