"""Text encoders: JSON, NDJSON and CSV. In CSV null is an empty field, a nested value its JSON text."""

import csv
import io
from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Rows
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
    for batch in rows.batches:
        if batch:
            yield _lines([[text_of(cell) or "" for cell in row] for row in batch])


def _lines(records: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(records)
    return out.getvalue().encode()
