"""Text encoders: JSON, NDJSON and CSV.

In CSV null is an empty field, a nested value its JSON text, and a TIMESTAMP is ISO 8601, as the other times are.
"""

import csv
import io
from collections.abc import Iterator

import msgspec

from cordwood.model.datatype import Kind
from cordwood.model.rows import Cell, Rows
from cordwood.model.timestamps import format_time
from cordwood.web.encode.cells import distinct_names, text_of


def encode_json(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns)
    encoder = msgspec.json.Encoder()
    opening = b'{"result":['
    for batch in rows.batches:
        if batch:
            objects = encoder.encode([dict(zip(names, row, strict=True)) for row in batch])
            yield opening + objects[1:-1]
            opening = b","
    yield b'{"result":[]}' if opening != b"," else b"]}"


def encode_ndjson(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns)
    encoder = msgspec.json.Encoder()
    for batch in rows.batches:
        if batch:
            yield encoder.encode_lines([dict(zip(names, row, strict=True)) for row in batch])


def encode_csv(rows: Rows) -> Iterator[bytes]:
    yield _lines([distinct_names(rows.columns)])
    converters = [_iso_8601 if column.datatype.kind is Kind.TIMESTAMP else _text for column in rows.columns]
    for batch in rows.batches:
        if batch:
            yield _lines([[convert(cell) for convert, cell in zip(converters, row, strict=True)] for row in batch])


def _text(cell: Cell) -> str:
    return text_of(cell) or ""


def _iso_8601(cell: Cell) -> str:
    """Convert microseconds since 1970; what is no such number, or is beyond the years 1 to 9999, is left as it is."""
    text = text_of(cell)
    try:
        return format_time(int(text)) if text else ""
    except (ValueError, OverflowError):
        return text or ""


def _lines(records: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(records)
    return out.getvalue().encode()
