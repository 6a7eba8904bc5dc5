"""Text encoders: JSON, NDJSON and CSV of rows, and the events of exports as they can be sent.

In CSV null is an empty field, a nested value its JSON text, and a TIMESTAMP is ISO 8601, as the other times are.
"""

import csv
import io
from collections.abc import Iterator

import msgspec

from cordwood.model.datatype import Kind
from cordwood.model.rows import Cell, Row, Rows
from cordwood.model.timestamps import format_time
from cordwood.web.encode.cells import distinct_names, text_of

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


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


def encode_event_lines(rows: Rows) -> Iterator[bytes]:
    for batch in rows.batches:
        if batch:
            yield b"\n".join(map(_event, batch)) + b"\n"


def encode_event_array(rows: Rows) -> Iterator[bytes]:
    opening = b"["
    for batch in rows.batches:
        if batch:
            yield opening + b",\n".join(map(_event, batch))
            opening = b",\n"
    yield b"[]\n" if opening == b"[" else b"]\n"


def _event(row: Row) -> bytes:
    """Return a row of the columns `STORED` as an event; the time of receipt is left out."""
    event_id, timestamp_us, message, project, metadata, extras, *_ = row
    event: dict[str, object] = {"id": event_id, "timestamp": format_time(int(str(timestamp_us)))}
    if message is not None:
        event["event_message"] = message
    if project is not None:
        event["project"] = project
    if metadata is not None:
        event["metadata"] = msgspec.Raw(str(metadata).encode())
    if extras is not None:
        event |= _fields.decode(str(extras))
    # JSON as it was sent may have line breaks between its tokens.
    return _encode(event).replace(b"\r", b" ").replace(b"\n", b" ")
