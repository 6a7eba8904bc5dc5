"""Positions in the rows of a followed query, and the rows on their way from the engine."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from cordwood.errors import BadParameter

_TEXT: Final = re.compile(r"(\d{1,18})-(\d{1,9})", re.ASCII)
# The end of the year 9999.
_LAST_US: Final = 253_402_300_799_999_999
_LENGTH: Final = struct.Struct("<I")


class Position(NamedTuple):
    """A place between two rows: before it are all rows of earlier receive times, and `rows` rows of `receipt_us`."""

    receipt_us: int
    rows: int

    def __str__(self) -> str:
        return f"{self.receipt_us}-{self.rows}"


def read_position(text: str) -> Position:
    """Return the position in an event id; raise BadParameter for any other text."""
    match = _TEXT.fullmatch(text.strip())
    if match is None or int(match[1]) > _LAST_US:
        raise BadParameter(
            f"The Last-Event-ID is {text[:60]!r}, which is not an id of this service.",
            hint="Send the id of the last event that arrived, or none.",
        )
    return Position(int(match[1]), int(match[2]))


class FollowedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a followed query as JSON, with the place of its event: receive time, own time, digest of its id."""

    receipt_us: int
    time_us: int
    key: str
    data: bytes

    @property
    def place(self) -> tuple[int, int, str]:
        return self.receipt_us, self.time_us, self.key


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[FollowedRow]).decode


def pack_rows(rows: Sequence[FollowedRow]) -> bytes:
    data = _encode(rows)
    return _LENGTH.pack(len(data)) + data


def unpack_rows(body: bytes) -> list[FollowedRow]:
    """Return the rows of a page; the rows of one event in an order that depends only on their values."""
    rows = [row for part in _parts(body) for row in _decode(part)]
    for place, row in enumerate(rows[1:], start=1):
        if row.place == rows[place - 1].place:
            return sorted(rows, key=lambda row: (row.place, _canonical(row.data)))
    return rows


def _parts(body: bytes) -> Iterator[memoryview]:
    view, start = memoryview(body), 0
    while start < len(view):
        end = start + _LENGTH.size + _LENGTH.unpack_from(view, start)[0]
        yield view[start + _LENGTH.size : end]
        start = end


def _canonical(data: bytes) -> bytes:
    """Return the JSON with sorted keys, because the engine keeps no order of them."""
    return msgspec.json.encode(msgspec.json.decode(data), order="deterministic")
