"""Rows as comma-separated values with a line of names; a null is an empty field, a nested value its JSON text."""

import csv
import io
from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Cell, Rows
from cordwood.web.encode.names import distinct_names


def encode(rows: Rows) -> Iterator[bytes]:
    yield _lines([distinct_names(rows.columns)])
    for batch in rows.batches:
        if batch:
            yield _lines([[_field(cell) for cell in row] for row in batch])


def _lines(records: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(records)
    return out.getvalue().encode()


def _field(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, msgspec.Raw):
        return bytes(cell).decode()
    return msgspec.json.encode(cell).decode()
