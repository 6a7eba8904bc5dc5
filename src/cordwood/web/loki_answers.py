"""Encode rows as answers of Loki's API: log lines by stream, samples, labels, numbers of entries, detected fields."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec

from cordwood.errors import AnswerTooLarge, TooManyRows
from cordwood.logql.labels import (
    MAX_FIELDS_PER_ENTRY,
    EntryLabels,
    FormatBudget,
    PipelineState,
    json_label_paths,
    label_name_of_column,
    parse_fields,
    read_entry,
)
from cordwood.logql.lexer import read_duration_seconds, read_size_bytes
from cordwood.logql.syntax import ParserKind, SampleSteps, max_series_count
from cordwood.model.datatype import Cell, Rows

# The maximum size of the lines and metadata in an answer, and of the lines that `line_format` writes in all its stages.
# The lines and metadata are in memory until the answer is encoded.
MAX_ENTRIES_BYTES: Final = 16 * 2**20
_MICROSECONDS_PER_SECOND: Final = 1_000_000
_MICROSECONDS_TO_NANOSECONDS_SUFFIX: Final = "000"

Labels = dict[str, str]
_encode_json = msgspec.json.Encoder().encode

_INTEGER_REGEX: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_FLOAT_REGEX: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_BOOLEAN_TEXTS: Final = frozenset({"true", "false"})
_MAX_QUANTITY_LENGTH: Final = 40


class LogEntry(msgspec.Struct, frozen=True):
    time_us: int
    line: str
    labels: EntryLabels


def _read_entries(rows: Rows, state: PipelineState) -> Iterator[LogEntry]:
    """Yield the log entries in the rows; raise AnswerTooLarge if they take more than `MAX_ENTRIES_BYTES`."""
    size = 0
    budget = FormatBudget(MAX_ENTRIES_BYTES)
    for batch in rows.batches:
        for source, time_us, message, metadata in batch:
            line = _text_of_cell(message)
            encoded = _raw_json(metadata)
            decoded = msgspec.json.decode(encoded) if encoded else None
            labels, line = read_entry(str(source), decoded, line, state, budget)
            size += len(line) + len(encoded)
            if size > MAX_ENTRIES_BYTES:
                raise AnswerTooLarge(
                    f"The entries are larger than {MAX_ENTRIES_BYTES // 2**20} MiB.", hint="Send a smaller limit."
                )
            yield LogEntry(int(str(time_us)), line, labels)


def encode_streams(rows: Rows, state: PipelineState, *, is_categorized: bool) -> Iterator[bytes]:
    """Encode log entries, grouped by Loki's streams. All entries with the same labels form a stream.

    If `is_categorized` is true, all entries with the same stream labels form a stream, whatever their other labels are.
    The other labels of an entry are then added to the entry.
    """
    streams: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
    for entry in _read_entries(rows, state):
        labels = entry.labels.stream_labels if is_categorized else entry.labels.all_labels()
        value: list[Any] = [f"{entry.time_us}{_MICROSECONDS_TO_NANOSECONDS_SUFFIX}", entry.line]
        if is_categorized:
            value.append(_categorized_labels(entry.labels))
        streams.setdefault(tuple(sorted(labels.items())), []).append(value)
    result = [{"stream": dict(labels), "values": values} for labels, values in streams.items()]
    flags = {"encodingFlags": ["categorize-labels"]} if is_categorized else {}
    yield success_body({"resultType": "streams", **flags, "result": result, "stats": {}})


class SeriesOrder(StrEnum):
    """The order of time series, by the sum of their values."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


def encode_samples(
    rows: Rows, steps: SampleSteps, *, is_instant: bool, order: SeriesOrder | None = None, limit: int | None = None
) -> Iterator[bytes]:
    """Encode time series: as a vector for an instant query, otherwise as a matrix.

    If there is an `order`, the series are sorted. Only the first `limit` series are encoded.
    """
    series = list(_read_series(rows, steps))
    if order is not None:
        series.sort(key=lambda one: _series_sort_key(one[1], order))
    series = series[:limit]
    if is_instant:
        result = [{"metric": labels, "value": _sample_json(*samples[0])} for labels, samples in series]
        yield success_body({"resultType": "vector", "result": result, "stats": {}})
        return
    matrix = [{"metric": labels, "values": [_sample_json(*one) for one in samples]} for labels, samples in series]
    yield success_body({"resultType": "matrix", "result": matrix, "stats": {}})


def encode_constant(value: float, steps: SampleSteps, *, is_instant: bool, is_vector: bool) -> bytes:
    """Encode the result of a query that is a constant, which has the same value at every step."""
    samples = [_sample_json(steps.start_us + number * steps.step_us, value) for number in range(steps.count)]
    if not is_instant:
        return success_body({"resultType": "matrix", "result": [{"metric": {}, "values": samples}], "stats": {}})
    if is_vector:
        return success_body({"resultType": "vector", "result": [{"metric": {}, "value": samples[0]}], "stats": {}})
    return success_body({"resultType": "scalar", "result": samples[0], "stats": {}})


def encode_label_values(rows: Rows) -> Iterator[bytes]:
    yield success_body([_text_of_cell(row[0]) for batch in rows.batches for row in batch])


def encode_label_sets(rows: Rows) -> Iterator[bytes]:
    yield success_body(list(_read_label_sets(rows)))


def encode_detected_labels(rows: Rows) -> Iterator[bytes]:
    """Encode the labels in the rows, each with the number of its distinct values."""
    values: dict[str, set[str]] = {}
    for labels in _read_label_sets(rows):
        for name, text in labels.items():
            values.setdefault(name, set()).add(text)
    yield _encode_json(
        {"detectedLabels": [{"label": name, "cardinality": len(found)} for name, found in sorted(values.items())]}
    )


def encode_stats(rows: Rows) -> Iterator[bytes]:
    """Encode how many streams, chunks, entries and bytes match a query. Each stream counts as one chunk."""
    streams, entries, size = next((row for batch in rows.batches for row in batch), (0, 0, 0))
    counts = {"streams": streams, "chunks": streams, "entries": entries, "bytes": size}
    yield _encode_json({name: int(str(count)) for name, count in counts.items()})


def _read_label_sets(rows: Rows) -> Iterator[Labels]:
    names = [label_name_of_column(column.name) for column in rows.columns]
    for batch in rows.batches:
        for row in batch:
            yield _labels_of_cells(names, row)


def success_body(data: object) -> bytes:
    return _encode_json({"status": "success", "data": data})


def _text_of_cell(cell: Cell) -> str:
    if isinstance(cell, msgspec.Raw):
        decoded = msgspec.json.decode(cell)
        return decoded if isinstance(decoded, str) else bytes(cell).decode()
    return "" if cell is None else str(cell)


def _format_value(value: float) -> str:
    """Format the value of a sample as Loki does: without an exponent. Special values are +Inf, -Inf and NaN."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _read_series(rows: Rows, steps: SampleSteps) -> Iterator[tuple[Labels, list[tuple[int, float]]]]:
    """Yield the labels and samples of each time series; raise TooManyRows at the end if there are too many series."""
    names = [label_name_of_column(column.name) for column in rows.columns[:-2]]
    count = 0
    for batch in rows.batches:
        for row in batch:
            count += 1
            *labels, numbers, values = row
            # An aggregate without labels has a row even if no entry matches. Such a row has no samples, so skip it.
            samples = list(_decode_samples(numbers, values, steps))
            if samples:
                yield _labels_of_cells(names, labels), samples
    maximum = max_series_count(steps)
    if rows.is_truncated or count > maximum:
        raise TooManyRows(
            f"The answer has more than {min(count, maximum)} series.",
            hint="Aggregate by fewer labels, as in sum by (level) (…).",
        )


def _series_sort_key(samples: Sequence[tuple[int, float]], order: SeriesOrder) -> tuple[bool, float]:
    """Return a key that sorts series by the sum of their values. Series whose sum is NaN come last in both orders."""
    total = sum(value for _, value in samples)
    if math.isnan(total):
        return True, 0.0
    return False, -total if order is SeriesOrder.DESCENDING else total


def _decode_samples(numbers: Cell, values: Cell, steps: SampleSteps) -> Iterator[tuple[int, float]]:
    for number, value in zip(_decode_list(numbers), _decode_list(values), strict=True):
        yield steps.start_us + int(number) * steps.step_us, float(value)


def _labels_of_cells(names: Sequence[str], cells: Iterable[Cell]) -> Labels:
    texts = zip(names, map(_text_of_cell, cells), strict=False)
    return {name: text for name, text in texts if text}


def _sample_json(time_us: int, value: float) -> list[object]:
    seconds = (
        time_us // _MICROSECONDS_PER_SECOND
        if time_us % _MICROSECONDS_PER_SECOND == 0
        else time_us / _MICROSECONDS_PER_SECOND
    )
    return [seconds, _format_value(value)]


def _categorized_labels(labels: EntryLabels) -> Mapping[str, Labels]:
    named = {"structuredMetadata": labels.field_labels, "parsed": labels.parsed_labels}
    return {name: found for name, found in named.items() if found}


def _decode_list(cell: Cell) -> list[Any]:
    found: list[Any] = msgspec.json.decode(_raw_json(cell) or b"[]")
    return found


def _raw_json(cell: Cell) -> bytes:
    if isinstance(cell, msgspec.Raw):
        return bytes(cell)
    return b"" if cell is None else str(cell).encode()


class _DetectedField(msgspec.Struct):
    value_type: str
    values: set[str] = msgspec.field(default_factory=set)
    parsers: set[str] = msgspec.field(default_factory=set)
    json_path: tuple[str, ...] = ()


def encode_detected_fields(rows: Rows, limit: int) -> Iterator[bytes]:
    """Encode the fields of log entries: type, number of distinct values, and the parsers that extract the field."""
    fields: dict[str, _DetectedField] = {}
    for entry in _read_entries(rows, PipelineState()):
        for name, text, parser in _detect_fields(entry):
            if name not in fields and len(fields) >= min(limit, MAX_FIELDS_PER_ENTRY):
                continue
            field = fields.setdefault(name, _DetectedField(_value_type(text)))
            field.values.add(text)
            field.parsers.update([parser] if parser else ())
            if field.value_type != _value_type(text):
                field.value_type = "string"
        _set_json_paths(fields, entry.line)
    described = [_field_json(name, field) for name, field in sorted(fields.items())]
    yield _encode_json({"fields": described, "limit": limit})


def encode_detected_field_values(rows: Rows, field_name: str, limit: int) -> Iterator[bytes]:
    """Encode the distinct values of one field of log entries, at most `limit` of them."""
    values: set[str] = set()
    for entry in _read_entries(rows, PipelineState()):
        found = {text for name, text, _ in _detect_fields(entry) if name == field_name and text}
        values.update(sorted(found - values)[: limit - len(values)])
    yield _encode_json({"values": sorted(values), "limit": limit})


def _detect_fields(entry: LogEntry) -> Iterator[tuple[str, str, str | None]]:
    for name, text in entry.labels.field_labels.items():
        yield name, text, None
    for kind in ParserKind:
        for name, text in parse_fields(entry.line, kind):
            if name not in entry.labels.field_labels and name not in entry.labels.stream_labels:
                yield name, text, kind.value


def _set_json_paths(fields: dict[str, _DetectedField], line: str) -> None:
    for name, path in json_label_paths(line):
        field = fields.get(name)
        if field is not None and not field.json_path and ParserKind.JSON.value in field.parsers:
            field.json_path = path


def _field_json(name: str, field: _DetectedField) -> dict[str, Any]:
    path = {"jsonPath": list(field.json_path)} if field.json_path else {}
    return {
        "label": name,
        "type": field.value_type,
        "cardinality": len(field.values),
        "parsers": sorted(field.parsers) or None,
        **path,
    }


def _value_type(text: str) -> str:
    if _INTEGER_REGEX.fullmatch(text):
        return "int"
    if _FLOAT_REGEX.fullmatch(text):
        return "float"
    if text in _BOOLEAN_TEXTS:
        return "boolean"
    if len(text) > _MAX_QUANTITY_LENGTH:
        return "string"
    if read_duration_seconds(text) is not None:
        return "duration"
    return "bytes" if read_size_bytes(text) is not None else "string"
