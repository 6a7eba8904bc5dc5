"""Format rows as text: as a table that fits the terminal, or as records with one line for each value."""

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cordwood.cli.terminal import printable_text
from cordwood.model.timestamps import format_timestamp

Row = Mapping[str, object]

# The maximum width of a cell if the output is not a terminal.
_MAX_CELL_WIDTH: Final = 80
# If columns would have to be narrower than this for a table to fit, the rows are printed as records instead.
_MIN_COLUMN_WIDTH: Final = 8
_COLUMN_GAP: Final = "  "
# Integers in this range, in microseconds since 1970, may be printed as times. It covers the years 2000 to 2099.
_TIMESTAMP_RANGE_US: Final = range(946_684_800_000_000, 4_102_444_800_000_000)
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class TableStyle(msgspec.Struct, frozen=True):
    """How rows are printed: the width of the terminal, whether with colours, and whether as records.

    Without `terminal_width`, for example in a file, a table may have any width, and only long cells are cut.
    """

    terminal_width: int | None = None
    is_coloured: bool = False
    is_vertical: bool = False


PLAIN_STYLE: Final = TableStyle()


def terminal_style(*, is_vertical: bool = False) -> TableStyle:
    """Return the style for standard output.

    On a terminal, it has the terminal's width, and colours unless NO_COLOR is set.
    """
    if not sys.stdout.isatty():
        return TableStyle(is_vertical=is_vertical)
    return TableStyle(shutil.get_terminal_size().columns, not os.environ.get("NO_COLOR"), is_vertical)


def format_table(rows: Sequence[Row], style: TableStyle = PLAIN_STYLE) -> str:
    """Format rows as a table with column names and right-aligned numbers, or as records if the table does not fit."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return "no rows" if not rows else f"{len(rows)} rows without columns"
    if style.is_vertical:
        return _format_as_records(columns, rows, style)
    names, *cells = [
        list(map(printable_text, columns)),
        *([_format_cell(name, row.get(name)) for name in columns] for row in rows),
    ]
    widths = _column_widths(names, cells, style.terminal_width)
    if not widths:
        return _format_as_records(columns, rows, style)
    alignments = [_is_numeric_column(name, rows) for name in columns]
    rule = _COLUMN_GAP.join("-" * width for width in widths)
    head = [_apply_style(_format_row(names, widths, alignments), _BOLD, style), _apply_style(rule, _DIM, style)]
    return "\n".join([*head, *(_format_row(line, widths, alignments) for line in cells)])


def _format_as_records(columns: Sequence[str], rows: Sequence[Row], style: TableStyle) -> str:
    """Format each row as a record: one line for each column, with its name and its whole value."""
    names = {name: printable_text(name) for name in columns}
    widest = max(map(display_width, names.values()))
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(_apply_style(f"-- row {number}", _DIM, style))
        for name in columns:
            padding = " " * (widest - display_width(names[name]))
            lines.append(
                f"{_apply_style(names[name], _BOLD, style)}{padding}{_COLUMN_GAP}{_format_value(name, row.get(name))}".rstrip()
            )
    return "\n".join(lines)


def _column_widths(names: Sequence[str], cells: Sequence[Sequence[str]], table_width: int | None) -> list[int]:
    """Return the widths of the columns of a table, or an empty list if the table cannot fit into `table_width`.

    The widest columns are narrowed until the table fits.
    """
    widths = [max(map(display_width, column)) for column in zip(names, *cells, strict=True)]
    if table_width is None:
        return [min(width, _MAX_CELL_WIDTH) for width in widths]
    available = table_width - len(_COLUMN_GAP) * (len(widths) - 1)
    if sum(widths) <= available:
        return list(widths)
    cap = max(widths)
    while cap >= _MIN_COLUMN_WIDTH and sum(min(width, cap) for width in widths) > available:
        cap -= 1
    return [min(width, cap) for width in widths] if cap >= _MIN_COLUMN_WIDTH else []


def _format_row(cells: Sequence[str], widths: Sequence[int], alignments: Sequence[bool]) -> str:
    columns = zip(cells, widths, alignments, strict=True)
    return _COLUMN_GAP.join(
        _pad_cell(cell, width, is_right_aligned=is_right_aligned) for cell, width, is_right_aligned in columns
    ).rstrip()


def _pad_cell(cell: str, width: int, *, is_right_aligned: bool) -> str:
    cut = _truncate_text(cell, width)
    padding = " " * (width - display_width(cut))
    return padding + cut if is_right_aligned else cut + padding


def _truncate_text(text: str, width: int) -> str:
    """Return the text if it fits into `width`, otherwise as much of its beginning as fits before an ellipsis."""
    if display_width(text) <= width:
        return text
    used, end = 0, 0
    for character in text:
        used += character_width(character)
        if used > width - 1:
            break
        end += 1
    return text[:end] + "…"


def display_width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(character_width, text))


def character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _format_cell(name: str, value: object) -> str:
    # A value may have megabytes of text. Therefore the text is first cut to a length that is still more than a cell can
    # show.
    return _format_value(name, value, limit=4 * _MAX_CELL_WIDTH)


def _format_value(name: str, value: object, limit: int | None = None) -> str:
    if value is None:
        return ""
    if is_printed_as_time(name, value):
        return format_timestamp(int(str(value)))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable_text(text if limit is None else text[:limit])


def _apply_style(text: str, escape_code: str, style: TableStyle) -> str:
    return f"{escape_code}{text}{_RESET}" if style.is_coloured else text


def is_printed_as_time(name: str, value: object) -> bool:
    """Return whether a value is printed as a time.

    This is so for an integer in `_TIMESTAMP_RANGE_US`, in a column whose name contains `time`.
    """
    return "time" in name.lower() and isinstance(value, int) and value in _TIMESTAMP_RANGE_US


def _is_numeric_column(name: str, rows: Sequence[Row]) -> bool:
    return all(_is_number(name, row.get(name)) for row in rows)


def _is_number(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not is_printed_as_time(name, value)


def source_excerpt(source: str, line: int, column: int, width: int = _MAX_CELL_WIDTH) -> str:
    """Return one line of a text and, below it, a line with a caret that marks the column.

    If the line is long, only the part around the column is shown.
    """
    lines = source.replace("\r\n", "\n").split("\n")
    if not 1 <= line <= len(lines):
        return ""
    text, place = lines[line - 1], max(0, column - 1)
    start = max(0, place - width // 2) if len(text) > width - 4 else 0
    part = printable_text(text[start : start + width - 4])
    return f"  {part}\n  {' ' * display_width(part[: place - start])}^"
