"""Pages of a followed query: runs over ranges of receive times, with rows in order of receipt, and positions in them."""

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from cordwood.errors import BadParameter, Busy, Cancelled, EngineUnreachable, OutOfMemory, TooManyBytes
from cordwood.model.timestamps import format_time
from cordwood.serve.jobs import Finished
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.singleflight import SingleFlight
from cordwood.sql.compile import FOLLOWED_PAGE_ROWS
from cordwood.sql.follow import AFTER_KEY, AFTER_TIME, FIRST_RECEIPT, LAST_RECEIPT

_POSITION_TEXT: Final = re.compile(r"(\d{1,18})-(\d{1,9})", re.ASCII)
# The end of the year 9999.
_LAST_US: Final = 253_402_300_799_999_999
_LENGTH: Final = struct.Struct("<I")

_encode = msgspec.msgpack.Encoder().encode
# The earliest event time that can be stored, in the year 1.
_FIRST_TIME_US: Final = -62_135_596_800_000_000
# A run that fails with a temporary error is repeated after these pauses.
_TEMPORARY_FAULTS: Final = (EngineUnreachable, Busy, Cancelled, OutOfMemory)
_RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, *[1.0] * 30)
# The factor by which the number of rows is reduced if those of a page are too large.
_ROWS_REDUCTION: Final = 8
RunPage = Callable[[QueryRequest], Awaitable[Finished]]


class Position(NamedTuple):
    """A place between two rows: after all rows with an earlier receive time, and after `rows` rows of `receipt_us`."""

    receipt_us: int
    rows: int

    def __str__(self) -> str:
        return f"{self.receipt_us}-{self.rows}"


def read_position(text: str) -> Position:
    """Parse the position in an event id; raise BadParameter for any other text."""
    match = _POSITION_TEXT.fullmatch(text.strip())
    if match is None or int(match[1]) > _LAST_US:
        raise BadParameter(
            f"The Last-Event-ID is {text[:60]!r}, which is not an id of this service.",
            hint="Send the id of the last event that arrived, or none.",
        )
    return Position(int(match[1]), int(match[2]))


class FollowedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a followed query as JSON, and its place: receive time, event time, and digest of the event's id."""

    receipt_us: int
    time_us: int
    key: str
    data: bytes

    @property
    def place(self) -> tuple[int, int, str]:
        return self.receipt_us, self.time_us, self.key


_decode = msgspec.msgpack.Decoder(list[FollowedRow]).decode


def pack_rows(rows: Sequence[FollowedRow]) -> bytes:
    data = _encode(rows)
    return _LENGTH.pack(len(data)) + data


def unpack_rows(body: bytes) -> list[FollowedRow]:
    """Return the rows of a page. Rows of the same event are in an order that depends only on their values."""
    rows = [row for part in _split_parts(body) for row in _decode(part)]
    for place, row in enumerate(rows[1:], start=1):
        if row.place == rows[place - 1].place:
            return sorted(rows, key=lambda row: (row.place, _canonical(row.data)))
    return rows


def _split_parts(body: bytes) -> Iterator[memoryview]:
    view, start = memoryview(body), 0
    while start < len(view):
        end = start + _LENGTH.size + _LENGTH.unpack_from(view, start)[0]
        yield view[start + _LENGTH.size : end]
        start = end


def _canonical(data: bytes) -> bytes:
    """Return the JSON with sorted keys, because the engine does not preserve their order."""
    return msgspec.json.encode(msgspec.json.decode(data), order="deterministic")


class Cursor(NamedTuple):
    """The start of a page: the first receive time, and the last event of that time before the page."""

    first_us: int
    time_us: int = _FIRST_TIME_US
    key: str = ""


class Page(NamedTuple):
    """Rows in order, and the start of the next page; `is_last` is true if the range has no further rows."""

    rows: Sequence[FollowedRow]
    following: Cursor
    is_last: bool


class Pages:
    """The runs of one followed query. Followers that need the same page share a run."""

    def __init__(self, request: QueryRequest, run: RunPage) -> None:
        self._request = request
        self._run = run
        self._runs: SingleFlight[Page] = SingleFlight()

    async def page(self, cursor: Cursor, last_us: int) -> Page:
        """Return the rows from the cursor to a receive time, inclusive. Waits while the engine is being replaced."""
        return await self._runs.join(
            (cursor, last_us), self._request.account, lambda *_: self._page_with_retries(cursor, last_us)
        )

    async def _page_with_retries(self, cursor: Cursor, last_us: int) -> Page:
        for pause in _RETRY_SECONDS:
            try:
                return await self._page(cursor, last_us)
            except _TEMPORARY_FAULTS:
                await asyncio.sleep(pause)
        return await self._page(cursor, last_us)

    async def _page(self, cursor: Cursor, last_us: int) -> Page:
        rows = FOLLOWED_PAGE_ROWS
        while True:
            try:
                finished = await self._run(self._page_request(cursor, last_us, rows))
            except TooManyBytes:
                if rows == 1:
                    raise
                rows = max(1, rows // _ROWS_REDUCTION)
            else:
                return _page_of(finished, last_us)

    def _page_request(self, cursor: Cursor, last_us: int, rows: int) -> QueryRequest:
        range_values = {
            FIRST_RECEIPT: format_time(cursor.first_us),
            LAST_RECEIPT: format_time(last_us),
            AFTER_TIME: format_time(cursor.time_us),
            AFTER_KEY: cursor.key,
        }
        parameters = {**self._request.parameters, **range_values}
        return msgspec.structs.replace(self._request, parameters=parameters, page_rows=rows)


def _page_of(finished: Finished, last_us: int) -> Page:
    rows = unpack_rows(finished.body)
    if finished.receipt.truncated is None:
        return Page(rows, Cursor(last_us + 1), is_last=True)
    # The rows of the last event may be incomplete, so they are left to the next page, unless the page has no others.
    last = rows[-1]
    complete = [row for row in rows if row.place != last.place] or rows
    return Page(complete, Cursor(*complete[-1].place), is_last=False)
