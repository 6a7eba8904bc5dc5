"""Columns of the answer that are computed from fetched values after the query, rather than by expressions in it.

DuckDB evaluates expressions for all rows before it takes the first rows. Without these expressions, the rows can also
be found in the recent table, or be read late.
"""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.nodes import internal_function, swap
from cordwood.sql.redaction.flow import unread_positions
from cordwood.sql.stages import AttributeMap, Completion, IsoTime

_ATTRIBUTES_FUNCTION: Final = internal_function("attributes")
_ISO_TIME_FUNCTION: Final = internal_function("iso_time")
_JSON_TEXT_FUNCTION: Final = internal_function("json_text")


def defer_columns(tree: exp.Expr) -> tuple[Completion, ...]:
    """Replace maps of attributes and texts of times by the columns from which they are computed; mutates the tree.

    The columns are appended to those of the answer.
    """
    if not isinstance(tree, exp.Select):
        return ()
    unread = unread_positions(tree)
    parts = _AppendedParts(tree)
    completions: list[Completion] = []
    for position, item in enumerate(list(tree.expressions)):
        value = item.unalias()
        if position + 1 not in unread or not isinstance(value, exp.Anonymous):
            continue
        if value.this == _ISO_TIME_FUNCTION and isinstance(value.expressions[0], exp.Column):
            swap(value, copied(value.expressions[0]))
            completions.append(IsoTime(position))
        elif value.this == _ATTRIBUTES_FUNCTION:
            metadata, extras, project = map(parts.position, value.expressions[:3])
            completions.append(
                AttributeMap(position, metadata, extras, project, constant_int(value.expressions[3]) or 0)
            )
            swap(value, exp.Null())
    return tuple(completions)


class _AppendedParts:
    """The parts of events that are appended to the columns of a SELECT, each once."""

    def __init__(self, select: exp.Select) -> None:
        self._select = select
        self._positions: dict[exp.Expr, int] = {}

    def position(self, part: exp.Expr) -> int:
        """Return the position of the column that has this part of the event."""
        document = _document_column(part)
        if document not in self._positions:
            self._positions[document] = len(self._select.expressions)
            name = f"part {len(self._positions)}"
            self._select.append("expressions", exp.alias_(document, name, quoted=True))
        return self._positions[document]


def _document_column(part: exp.Expr) -> exp.Expr:
    """Return a part of an event; a whole column is converted to text when it is fetched."""
    is_json = isinstance(part, exp.Anonymous) and part.this == _JSON_TEXT_FUNCTION
    column = part.expressions[0] if is_json else part
    is_whole = isinstance(column, exp.Column) and not column.meta_get("only_text")
    return copied(column if is_whole else part)
