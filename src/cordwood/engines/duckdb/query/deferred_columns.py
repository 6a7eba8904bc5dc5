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

    The parts of events are appended to the columns of the answer.
    """
    if not isinstance(tree, exp.Select):
        return ()
    unread = unread_positions(tree)
    parts = _Parts(tree)
    completions: list[Completion] = []
    for position, item in enumerate(list(tree.expressions)):
        value = item.unalias()
        if position + 1 not in unread or not isinstance(value, exp.Anonymous):
            continue
        if value.this == _TIME and isinstance(value.expressions[0], exp.Column):
            swap(value, copied(value.expressions[0]))
            completions.append(IsoTime(position))
        elif value.this == _MAP:
            metadata, extras, project = map(parts.position, value.expressions[:3])
            completions.append(
                AttributeMap(position, metadata, extras, project, constant_int(value.expressions[3]) or 0)
            )
            swap(value, exp.Null())
    return tuple(completions)


class _Parts:
    """The parts of events that are appended to the columns of a SELECT, each once."""

    def __init__(self, select: exp.Select) -> None:
        self._select = select
        self._positions: dict[exp.Expr, int] = {}

    def position(self, part: exp.Expr) -> int:
        """Return the position of the column that has this part."""
        document = _document(part)
        if document not in self._positions:
            self._positions[document] = len(self._select.expressions)
            name = f"part {len(self._positions)}"
            self._select.append("expressions", exp.alias_(document, name, quoted=True))
        return self._positions[document]


def _document(part: exp.Expr) -> exp.Expr:
    """Return a part of an event; a whole column is converted to text when it is fetched."""
    is_json = isinstance(part, exp.Anonymous) and part.this == _JSON
    column = part.expressions[0] if is_json else part
    is_whole = isinstance(column, exp.Column) and not column.meta_get("only_text")
    return copied(column if is_whole else part)
