"""Encode rows as text: JSON, NDJSON, CSV, Prometheus, and exported events, which can be sent to the service again.

In CSV, a null is an empty field, a nested value is JSON text, and a TIMESTAMP is written in ISO 8601 like the other
types of time.

The format for Prometheus is meant for scrapes. Each numeric column becomes a metric with the column's name and one
sample for each row. The text columns become the labels. Nulls and columns with times are left out; Prometheus itself
records the time of the scrape.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Cell, Kind, Row, Rows
from cordwood.model.timestamps import format_timestamp
from cordwood.web.encode.cells import cell_text, distinct_names

_encode_object = msgspec.json.Encoder().encode
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    yield _csv_lines([distinct_names(rows.columns)])
    converters = [
        _iso_time_text if column.datatype.kind is Kind.TIMESTAMP else _cell_text_or_empty for column in rows.columns
    ]
    for batch in rows.batches:
        if batch:
            yield _csv_lines([[convert(cell) for convert, cell in zip(converters, row, strict=True)] for row in batch])


def _cell_text_or_empty(cell: Cell) -> str:
    return cell_text(cell) or ""


def _iso_time_text(cell: Cell) -> str:
    """Format a number of microseconds since 1970 as ISO 8601.

    A cell that is not such a number, or is a time outside the years 1 to 9999, is returned unchanged.
    """
    text = cell_text(cell)
    try:
        return format_timestamp(int(text)) if text else ""
    except (ValueError, OverflowError):
        return text or ""


def _csv_lines(records: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(records)
    return out.getvalue().encode()


def encode_event_lines(rows: Rows) -> Iterator[bytes]:
    for batch in rows.batches:
        if batch:
            yield b"\n".join(map(_encode_event, batch)) + b"\n"


def encode_event_array(rows: Rows) -> Iterator[bytes]:
    opening = b"["
    for batch in rows.batches:
        if batch:
            yield opening + b",\n".join(map(_encode_event, batch))
            opening = b",\n"
    yield b"[]\n" if opening == b"[" else b"]\n"


def _encode_event(row: Row) -> bytes:
    """Convert the row of a stored event, with all its columns, to the event as JSON, without its time of receipt."""
    event_id, timestamp_us, message, project, metadata, extras, *_ = row
    event: dict[str, object] = {"id": event_id, "timestamp": format_timestamp(int(str(timestamp_us)))}
    if message is not None:
        event["event_message"] = message
    if project is not None:
        event["project"] = project
    if metadata is not None:
        event["metadata"] = msgspec.Raw(str(metadata).encode())
    if extras is not None:
        event |= _fields_decoder.decode(str(extras))
    # Replace line breaks by spaces, because each event is one line. The sender's JSON may have line breaks between its
    # tokens.
    return _encode_object(event).replace(b"\r", b" ").replace(b"\n", b" ")


PROMETHEUS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SAMPLE_KINDS: Final = frozenset({Kind.INT64, Kind.FLOAT64, Kind.NUMERIC, Kind.BOOL})
_TIME_KINDS: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME})
# Names that begin with two underscores are not allowed, because Prometheus reserves them.
_METRIC_NAME_REGEX: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def encode_prometheus(rows: Rows) -> Iterator[bytes]:
    """Yield the lines of each metric, one metric after the other; raise BadQueryValue if a row cannot be a sample."""
    names = distinct_names(rows.columns)
    kinds = [column.datatype.kind for column in rows.columns]
    metrics = [place for place, kind in enumerate(kinds) if kind in _SAMPLE_KINDS]
    labels = [place for place, kind in enumerate(kinds) if kind not in _SAMPLE_KINDS | _TIME_KINDS]
    if not metrics:
        raise BadQueryValue(
            "The answer has no numeric column, so it has no metric for Prometheus.",
            hint="Select a number, for example COUNT(*) AS requests.",
        )
    for place in (*metrics, *labels):
        _check_metric_name(names[place])
    labelled_rows = list(_rows_with_labels(rows, names, labels))
    for place in metrics:
        lines = [f"# TYPE {names[place]} gauge\n"]
        lines += [
            f"{names[place]}{labelled} {_format_sample_value(row[place], names[place])}\n"
            for labelled, row in labelled_rows
            if row[place] is not None
        ]
        yield "".join(lines).encode()


def _rows_with_labels(rows: Rows, names: Sequence[str], labels: Sequence[int]) -> Iterator[tuple[str, Row]]:
    """Yield the labels of each row as text, with the row; raise BadQueryValue if two rows have the same labels."""
    seen: set[str] = set()
    for batch in rows.batches:
        for row in batch:
            labelled = _format_labels([(names[place], row[place]) for place in labels])
            if labelled in seen:
                raise BadQueryValue(
                    f"Two rows have the same labels {labelled or '{}'}, so they are one series for Prometheus.",
                    hint="GROUP BY every text column of the query.",
                )
            seen.add(labelled)
            yield labelled, row


def _format_labels(cells: Sequence[tuple[str, Cell]]) -> str:
    texts = [(name, cell_text(cell)) for name, cell in cells]
    parts = [f'{name}="{text.translate(_LABEL_ESCAPES)}"' for name, text in texts if text is not None]
    return f"{{{','.join(parts)}}}" if parts else ""


def _format_sample_value(cell: Cell, name: str) -> str:
    if isinstance(cell, bool) or cell in ("true", "false"):
        return "1" if cell in (True, "true") else "0"
    text = str(cell) if isinstance(cell, float) else cell_text(cell) or ""
    try:
        number = float(text)
    except ValueError:
        raise BadQueryValue(f"A value of the column {name} is not a number.", hint="Cast it to FLOAT64.") from None
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return text


def _check_metric_name(name: str) -> None:
    if not _METRIC_NAME_REGEX.fullmatch(name):
        raise BadQueryValue(
            f"The column {name!r} cannot be the name of a metric or a label of Prometheus.",
            hint="Rename it with AS: letters, digits and _, with a letter first.",
        )
