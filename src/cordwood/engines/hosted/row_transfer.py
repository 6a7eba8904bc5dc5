"""Rows in transit from the engine's process to a caller that encodes them itself."""

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import cast

from cordwood.engines.engine import Run
from cordwood.engines.hosted.messages import NUMBER, pack, unpack
from cordwood.model.rows import Column, Row, Rows


def encode(rows: Rows) -> Iterator[bytes]:
    """Yield the columns, then each batch, each with its length before it."""
    for value in chain([rows.columns], rows.batches):
        data = pack(value)
        yield NUMBER.pack(len(data)) + data


def decode_rows(run: Run) -> Rows:
    values = _values(run.chunks())
    rows = Rows(cast(tuple[Column, ...], next(values)), ())
    rows.batches = _batches(run, rows, values)
    return rows


def _batches(run: Run, rows: Rows, values: Generator[object, None, None]) -> Iterator[list[Row]]:
    with closing(values):
        for batch in values:
            yield cast(list[Row], batch)
    stats = run.stats()
    rows.truncated, rows.engine_seconds = stats.truncated, stats.engine_seconds


def _values(chunks: Generator[bytes, None, None]) -> Generator[object, None, None]:
    buffer = bytearray()
    with closing(chunks):
        for chunk in chunks:
            buffer += chunk
            while len(buffer) >= NUMBER.size and len(buffer) >= (end := NUMBER.size + NUMBER.unpack_from(buffer)[0]):
                yield unpack(bytes(buffer[NUMBER.size : end]))
                del buffer[:end]
