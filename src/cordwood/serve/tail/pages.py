"""Pages of a followed query: runs over a range of receive times, in the order of receipt."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from cordwood.errors import Busy, Cancelled, EngineUnreachable, OutOfMemory, TooManyBytes
from cordwood.model.timestamps import format_time
from cordwood.serve.jobs import Finished
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.singleflight import SingleFlight
from cordwood.serve.tail.position import FollowedRow, unpack_rows
from cordwood.sql.compile import FOLLOWED_ROWS
from cordwood.sql.follow import FIRST, KEY, LAST, TIME

# The first event time that can be stored, in the year 1.
_FIRST_TIME_US: Final = -62_135_596_800_000_000
# A run that fails for a reason that passes is repeated after these pauses.
_RETRY: Final = (EngineUnreachable, Busy, Cancelled, OutOfMemory)
_RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, *[1.0] * 30)
# How much fewer rows are read if those of a page are too large.
_SMALLER: Final = 8

RunPage = Callable[[QueryRequest], Awaitable[Finished]]


class Cursor(NamedTuple):
    """The start of a page: the first receive time, and the event of that time after which it begins."""

    first_us: int
    time_us: int = _FIRST_TIME_US
    key: str = ""


class Page(NamedTuple):
    """Rows in order, and where the next page begins; `is_last` if the range has no more of them."""

    rows: Sequence[FollowedRow]
    following: Cursor
    is_last: bool


class Pages:
    """The runs of one followed query; followers that need the same page share a run."""

    def __init__(self, request: QueryRequest, run: RunPage) -> None:
        self._request = request
        self._run = run
        self._runs: SingleFlight[Page] = SingleFlight()

    async def page(self, cursor: Cursor, last_us: int) -> Page:
        """Return the rows from the cursor to a receive time, inclusive; wait for an engine that is being replaced."""
        return await self._runs.join(
            (cursor, last_us), self._request.account, lambda *_: self._page_of_some_attempt(cursor, last_us)
        )

    async def _page_of_some_attempt(self, cursor: Cursor, last_us: int) -> Page:
        for pause in _RETRY_SECONDS:
            try:
                return await self._page(cursor, last_us)
            except _RETRY:
                await asyncio.sleep(pause)
        return await self._page(cursor, last_us)

    async def _page(self, cursor: Cursor, last_us: int) -> Page:
        rows = FOLLOWED_ROWS
        while True:
            try:
                finished = await self._run(self._page_request(cursor, last_us, rows))
            except TooManyBytes:
                if rows == 1:
                    raise
                rows = max(1, rows // _SMALLER)
            else:
                return _page_of(finished, last_us)

    def _page_request(self, cursor: Cursor, last_us: int, rows: int) -> QueryRequest:
        range_values = {
            FIRST: format_time(cursor.first_us),
            LAST: format_time(last_us),
            TIME: format_time(cursor.time_us),
            KEY: cursor.key,
        }
        parameters = {**self._request.parameters, **range_values}
        return msgspec.structs.replace(self._request, parameters=parameters, page_rows=rows)


def _page_of(finished: Finished, last_us: int) -> Page:
    rows = unpack_rows(finished.body)
    if finished.receipt.truncated is None:
        return Page(rows, Cursor(last_us + 1), is_last=True)
    # The rows of the last event may be incomplete, so the next page has them; a page that has no others keeps them.
    last = rows[-1]
    complete = [row for row in rows if row.place != last.place] or rows
    return Page(complete, Cursor(*complete[-1].place), is_last=False)
