"""Encoders of stored events for exports: NDJSON and JSON have them as they can be sent, CSV has them as rows."""

from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Row, Rows
from cordwood.model.timestamps import format_time

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
