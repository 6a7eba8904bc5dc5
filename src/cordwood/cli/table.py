"""Rows as an aligned text table; long values are truncated."""

import json
from collections.abc import Mapping, Sequence

from cordwood.model.moments import moment_of

_WIDEST = 80
# A TIMESTAMP is in microseconds since 1970: the years 2000 to 2100.
_MICROSECONDS = range(946_684_800_000_000, 4_102_444_800_000_000)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Format the rows under their column names; numbers are right-aligned."""
    if not rows:
        return "no rows"
    columns = list(rows[0])
    cells = [[_shown(name, row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [_are_numbers(name, rows) for name in columns]
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(_line(line, widths, right) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _shown(name: str, value: object) -> str:
    if value is None:
        return ""
    if _is_time(name, value):
        return moment_of(int(str(value))).isoformat(timespec="microseconds")[:26] + "Z"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"


def _is_time(name: str, value: object) -> bool:
    """Return whether to format a value as a time: by its column's name and its magnitude."""
    return "time" in name.lower() and isinstance(value, int) and value in _MICROSECONDS


def _are_numbers(name: str, rows: Sequence[Mapping[str, object]]) -> bool:
    return all(_is_number(name, row.get(name)) for row in rows)


def _is_number(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not _is_time(name, value)
