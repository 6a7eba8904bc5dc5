"""Read Parquet files as events.

A separate DuckDB instance reads them, because the instance of the store is not allowed to open other files.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import msgspec

from cordwood.engines.engine import STORED_EVENT_COLUMNS
from cordwood.errors import BadBody
from cordwood.model.datatype import Kind
from cordwood.model.json_checks import describe_json_error

DAMAGED_FILE_HINT = "It was cut off or is damaged: have it made again. What is stored of it is not stored twice."
_FETCH_BATCH_ROWS = 2048

_EXPORT_COLUMN_NAMES = {column.name for column in STORED_EVENT_COLUMNS}
_STORED_FIELDS_SQL = ", ".join(
    f"{column.name}: epoch_us({column.name})"
    if column.datatype.kind is Kind.TIMESTAMP
    else f"{column.name}: {column.name}"
    for column in STORED_EVENT_COLUMNS
)
_UNCHANGED_FIELD_NAMES = ("id", "timestamp", "event_message", "project")

_JsonFields = dict[str, msgspec.Raw]
_decode_fields = msgspec.json.Decoder(_JsonFields).decode
_encode_fields = msgspec.json.Encoder().encode

# A JSON string, or a number that JSON cannot represent, as DuckDB and Python write it. An unclosed string matches up to
# the end of the text, because otherwise each of its escaped quotes would be tried as the start of a string.
_STRING_OR_NON_FINITE_NUMBER_PATTERN = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|(-?(?:NaN|Infinity))', re.DOTALL
)
_LINE_END_TRANSLATION = bytes.maketrans(b"\r\n", b"  ")


class UnreadableRow(msgspec.Struct, frozen=True):
    """A row that cannot be an event, with its JSON text as DuckDB writes it and the reason."""

    text: str
    reason: str


def read_parquet_events(file: Path) -> Iterator[bytes | UnreadableRow]:
    """Yield every row of the file as an event in JSON without line ends.

    If the file is an export of stored events, each event has the form in which it was originally sent. In other files,
    JSON text in the column `metadata` is decoded. NaN and infinities, which are not JSON, become texts.
    """
    with _open_query(file, "SELECT to_json(event) FROM read_parquet($file) AS event") as reader:
        for (row,) in _read_rows(reader):
            yield _make_event(row)


def _make_event(row: str) -> bytes | UnreadableRow:
    try:
        fields = _decode_row(row)
        event = (
            _restore_original_event(fields)
            if fields.keys() == _EXPORT_COLUMN_NAMES
            else fields | _decode_metadata(fields)
        )
    except msgspec.DecodeError as problem:
        return UnreadableRow(row, f"The row is not JSON: {describe_json_error(problem, row.encode())}.")
    except RecursionError:
        return UnreadableRow(row, "The row is nested too deeply.")
    # Line ends occur only between tokens, in metadata that was sent with them.
    return _encode_fields(event).translate(_LINE_END_TRANSLATION)


def _decode_row(text: str) -> _JsonFields:
    try:
        return _decode_fields(text)
    except msgspec.DecodeError:
        return _decode_fields(_quote_non_finite_numbers(text))


def _quote_non_finite_numbers(text: str) -> str:
    """Put NaN, Infinity and -Infinity into quotes, except inside of strings."""
    return _STRING_OR_NON_FINITE_NUMBER_PATTERN.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)


def read_stored_events(file: Path) -> Iterator[bytes]:
    """Yield every row of an export as a JSON object with the columns of stored events; times are in microseconds."""
    with _open_query(file, f"SELECT to_json({{{_STORED_FIELDS_SQL}}}) FROM read_parquet($file)") as reader:  # noqa: S608 - our own names
        for (row,) in _read_rows(reader):
            yield row.encode()


def is_event_export(file: Path) -> bool:
    """Return whether the file has exactly the columns of an export of stored events."""
    with _open_query(file, "DESCRIBE FROM read_parquet($file)") as reader:
        return {row[0] for row in reader.fetchall()} == _EXPORT_COLUMN_NAMES


def count_parquet_rows(file: Path) -> int:
    """Return the number of rows of a Parquet file; DuckDB reads the number from the file's metadata."""
    with _open_query(file, "SELECT count(*) FROM read_parquet($file)") as reader:
        count: int = next(iter(reader.fetchall()))[0]
        return count


@contextmanager
def _open_query(file: Path, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with duckdb.connect(":memory:") as reader:
            reader.execute("SET TimeZone = 'UTC'")
            yield reader.execute(query, {"file": str(file)})
    except duckdb.Error as problem:
        message = str(problem).partition("\n")[0]
        cause = (message.partition("Error: ")[2] or message).rstrip(".:!")
        raise BadBody(f"{file} cannot be read as Parquet: {cause}.", hint=DAMAGED_FILE_HINT) from problem


def _read_rows(reader: duckdb.DuckDBPyConnection) -> Iterator[tuple[str]]:
    while rows := reader.fetchmany(_FETCH_BATCH_ROWS):
        yield from rows


def _restore_original_event(stored: _JsonFields) -> _JsonFields:
    """Return the fields that an exported event had when it was sent, without the receive time that was added later."""
    posted = {name: stored[name] for name in _UNCHANGED_FIELD_NAMES}
    metadata, extras = _decode_text(stored["metadata"]), _decode_text(stored["extras"])
    if metadata is not None:
        posted["metadata"] = msgspec.Raw(metadata.encode())
    return posted | (msgspec.json.decode(extras, type=_JsonFields) if extras is not None else {})


def _decode_text(raw: msgspec.Raw) -> str | None:
    return msgspec.json.decode(raw, type=str | None)


def _decode_metadata(fields: _JsonFields) -> _JsonFields:
    """Return the column `metadata` (in any case) with its JSON text decoded, if it is the text of an object."""
    decoded: _JsonFields = {}
    for name, value in fields.items():
        if name.lower() != "metadata" or not bytes(value).startswith(b'"{'):
            continue
        text = _to_valid_json(msgspec.json.decode(value, type=str))
        if text is not None:
            # Keep the text as it is, because the ids of events without an id are computed from it.
            decoded[name] = msgspec.Raw(text.encode())
    return decoded


def _to_valid_json(text: str) -> str | None:
    """Return the text of an object, with NaN and infinities in quotes if it has them; None if it is not valid JSON."""
    for quote in (str, _quote_non_finite_numbers):
        quoted = quote(text)
        try:
            _decode_fields(quoted)
        except msgspec.DecodeError:
            continue
        return quoted
    return None
