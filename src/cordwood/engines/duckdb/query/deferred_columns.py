"""Columns that only the answer has, and that are made of the fetched values instead of by an expression of the engine.

DuckDB evaluates the expressions of all rows before it takes the first of them. What a column is made of is passed through
instead, so that the rows can be found in the recent table, or be read late.
"""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.nodes import internal_function, swap
from cordwood.sql.redaction.flow import unread_positions
from cordwood.sql.stages import AttributeMap, Completion, IsoTime

_MAP: Final = internal_function("attributes")
_TIME: Final = internal_function("iso_time")
_JSON: Final = internal_function("json_text")


def defer_columns(tree: exp.Expr) -> tuple[Completion, ...]:
    """Replace maps of attributes and texts of times by what they are made of; mutates the tree.

    The parts of an event that need columns of their own are appended to those of the answer.
    """
    if not isinstance(tree, exp.Select):
        return ()
    unread = unread_positions(tree)
    items = list(enumerate(tree.expressions))
    deferred = (_defer(tree, index, item.unalias()) for index, item in items if index + 1 in unread)
    return tuple(completion for completion in deferred if completion is not None)


def _defer(tree: exp.Select, position: int, value: exp.Expr) -> Completion | None:
    if not isinstance(value, exp.Anonymous):
        return None
    if value.this == _TIME and isinstance(value.expressions[0], exp.Column):
        swap(value, copied(value.expressions[0]))
        return IsoTime(position)
    if value.this != _MAP:
        return None
    metadata, extras, project, levels = value.expressions
    completion = AttributeMap(position, _append(tree, extras), _append(tree, project), constant_int(levels) or 0)
    swap(value, _document(metadata))
    return completion


def _append(tree: exp.Select, part: exp.Expr) -> int:
    position = len(tree.expressions)
    tree.append("expressions", exp.alias_(_document(part), f"part {position}", quoted=True))
    return position


def _document(part: exp.Expr) -> exp.Expr:
    """Return a part of an event; a whole column is converted to text when it is fetched."""
    is_json = isinstance(part, exp.Anonymous) and part.this == _JSON
    column = part.expressions[0] if is_json else part
    is_whole = isinstance(column, exp.Column) and not column.meta_get("only_text")
    return copied(column if is_whole else part)
