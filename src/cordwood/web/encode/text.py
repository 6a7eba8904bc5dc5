"""Text encoders: JSON, NDJSON and CSV of rows, and exported events in the form in which they can be sent again.

In CSV, a null is an empty field, a nested value is JSON text, and a TIMESTAMP is ISO 8601 like the other time types.
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
    """Format microseconds since 1970; any other value, and a time beyond the years 1 to 9999, is unchanged."""
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
    """Convert a row of the columns `STORED` to an event, without its time of receipt."""
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
    # The JSON of the sender may have line breaks between its tokens.
    return _encode(event).replace(b"\r", b" ").replace(b"\n", b" ")
