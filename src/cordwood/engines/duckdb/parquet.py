"""Reads a Parquet file as events, through an instance of its own: the store's may not open files."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec

from cordwood.errors import BadBody

_BATCH_ROWS = 2048

_Fields = dict[str, msgspec.Raw]


def read_parquet(file: Path) -> Iterator[bytes]:
    """Every row as an event in JSON; `metadata` that is JSON text becomes JSON."""
    decode, encode = msgspec.json.Decoder(_Fields).decode, msgspec.json.Encoder().encode
    try:
        with duckdb.connect(":memory:") as reader:
            reader.execute("SET TimeZone = 'UTC'")
            reader.execute("SELECT to_json(event) FROM read_parquet($file) AS event", {"file": str(file)})
            for (row,) in _rows(reader):
                fields = decode(row)
                yield encode(fields | _as_json(fields.get("metadata")))
    except duckdb.Error as problem:
        raise BadBody(f"{file} cannot be read as Parquet: {str(problem).partition(chr(10))[0]}") from problem


def _rows(reader: duckdb.DuckDBPyConnection) -> Iterator[tuple[str]]:
    while rows := reader.fetchmany(_BATCH_ROWS):
        yield from rows


def _as_json(metadata: msgspec.Raw | None) -> _Fields:
    if metadata is None or not bytes(metadata).startswith(b'"{'):
        return {}
    return {"metadata": msgspec.Raw(msgspec.json.decode(metadata, type=str).encode())}
