"""Rows in transit from the engine's process to a caller that encodes them itself."""

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import cast

from cordwood.engines.engine import Run
from cordwood.engines.hosted.messages import NUMBER, packed, unpacked
from cordwood.model.rows import Column, Row, Rows


def encode(rows: Rows) -> Iterator[bytes]:
    """Yield the columns, then each batch, each with its length before it."""
    for value in chain([rows.columns], rows.batches):
        data = packed(value)
        yield NUMBER.pack(len(data)) + data


def rows_of(run: Run) -> Rows:
    values = _values(run.pieces())
    rows = Rows(cast(tuple[Column, ...], next(values)), ())
    rows.batches = _batches(run, rows, values)
    return rows


def _batches(run: Run, rows: Rows, values: Generator[object, None, None]) -> Iterator[list[Row]]:
    with closing(values):
        for batch in values:
            yield cast(list[Row], batch)
    made = run.made()
    rows.truncated, rows.engine_seconds = made.truncated, made.engine_seconds


def _values(pieces: Generator[bytes, None, None]) -> Generator[object, None, None]:
    held = bytearray()
    with closing(pieces):
        for piece in pieces:
            held += piece
            while len(held) >= NUMBER.size and len(held) >= (end := NUMBER.size + NUMBER.unpack_from(held)[0]):
                yield unpacked(bytes(held[NUMBER.size : end]))
                del held[:end]
