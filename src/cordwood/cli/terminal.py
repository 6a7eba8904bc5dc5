"""Terminal output: results to standard output, everything else to standard error; tables and progress lines."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

from cordwood.model.timestamps import format_time


def say(text: str) -> None:
    print(text, flush=True)


def tell(text: str) -> None:
    """Print a line; ignore a closed standard output, because a service must not end with its reader."""
    try:
        say(text)
    except OSError:
        # Otherwise the buffered text would be written again at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print to standard error; ignore a closed terminal."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class ByteProgress(msgspec.Struct):
    byte_count: int = 0
    began: float = msgspec.field(default_factory=time.monotonic)
    _told: float = 0.0

    def add(self, byte_count: int) -> None:
        self.byte_count += byte_count
        if sys.stderr.isatty() and time.monotonic() - self._told > 0.1:
            self._told = time.monotonic()
            print(f"\r{self.line()}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._told:
            note("")

    def line(self) -> str:
        seconds = max(time.monotonic() - self.began, 1e-9)
        return f"{self.byte_count / 1e6:,.1f} MB ({self.byte_count / 1e6 / seconds:,.1f} MB/s)"


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
    return "\n".join(_row(line, widths, right) for line in lines)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _shown(name: str, value: object) -> str:
    if value is None:
        return ""
    if _is_time(name, value):
        return format_time(int(str(value)))
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
