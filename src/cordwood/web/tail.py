"""Follow a query: send its rows as Server-Sent Events when their events are stored."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import partial

import msgspec

from cordwood.errors import BadParameter, Fault, Forbidden
from cordwood.model.datatype import Row, Rows
from cordwood.model.endpoint import Endpoint
from cordwood.model.timestamps import now_us
from cordwood.serve.query_request import Format
from cordwood.serve.tails import FollowedRow, Position, pack_rows, read_position
from cordwood.settings.quantities import read_duration
from cordwood.sql.follow import HIDDEN_COLUMNS
from cordwood.web.answer_rendering import header_text, ignored_headers, rate_headers
from cordwood.web.asgi import Header, Request, Response, write_part_of
from cordwood.web.credentials import account_of_key
from cordwood.web.encode.cells import distinct_names
from cordwood.web.lifecycle import Services
from cordwood.web.options import WebOptions
from cordwood.web.query import admit_query
from cordwood.web.receiving import while_connected

_encode = msgspec.json.Encoder().encode


def _encode_followed(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns[:-HIDDEN_COLUMNS])
    for batch in rows.batches:
        if batch:
            yield pack_rows([_followed_row(names, row) for row in batch])


def _followed_row(names: list[str], row: Row) -> FollowedRow:
    data = _encode(dict(zip(names, row[:-HIDDEN_COLUMNS], strict=True)))
    if b"\n" in data or b"\r" in data:
        # The JSON of the sender may have line breaks between its tokens, which would end the line of the event stream.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    receipt_us, time_us, key = row[-HIDDEN_COLUMNS:]
    return FollowedRow(int(str(receipt_us)), int(str(time_us)), str(key), data)


TAIL_FORMAT = Format("tail", "text/event-stream", _encode_followed)


SINCE = "since"
_HEADERS: tuple[Header, ...] = (
    (b"content-type", TAIL_FORMAT.media_type.encode()),
    (b"cache-control", b"no-store"),
    # This header makes nginx and similar proxies send each event at once.
    (b"x-accel-buffering", b"no"),
)


async def follow_query(request: Request, services: Services, options: WebOptions, address: str) -> Response:
    admitted = await admit_query(request, services, options, address, TAIL_FORMAT)
    query_request, allowance = admitted.request, admitted.allowance
    endpoint = query_request.endpoint
    position = _start_position(request, admitted.texts, endpoint)

    def access_fault() -> Fault | None:
        """Return why the caller may no longer follow the query: the endpoint or the key has changed."""
        try:
            current = services.catalog.endpoint(address)
            if (
                current is endpoint
                and services.access.authenticate_for_endpoint(admitted.key, current, address) == query_request.caller
            ):
                return None
        except Fault as fault:
            return fault
        return Forbidden("The endpoint or the key has changed.", hint="Connect again.")

    write_part = write_part_of(request.scope)
    write = partial(_write_framed, write_part) if write_part is not None else None
    client = account_of_key(request, "")
    follower = await while_connected(
        request, services.tails.follow(query_request, position, access_fault, write, client)
    )
    chunks = follower.chunks()
    # The first chunk is read here: from now on, closing the generator ends the follower, however the connection ends.
    first = await anext(chunks)
    ignored = ignored_headers(name for name in query_request.ignored if name != SINCE)
    notices = [(b"cordwood-notice", header_text(notice)) for notice in follower.notices]
    rate = rate_headers(allowance) if allowance is not None else []
    return Response(200, [*_HEADERS, *ignored, *notices, *rate], _prepend(first, chunks))


def _write_framed(write: Callable[[bytes], bool], chunk: bytes) -> bool:
    return write(_framed(chunk))


class _LastFrame:
    """The last chunk and its framed form. Followers of one query are sent the same chunk one after the other."""

    chunk = b""
    framed = b""


def _framed(chunk: bytes) -> bytes:
    """Return a chunk in the chunked transfer encoding of HTTP/1.1."""
    if chunk is not _LastFrame.chunk:
        _LastFrame.chunk, _LastFrame.framed = chunk, b"%x\r\n%b\r\n" % (len(chunk), chunk)
    return _LastFrame.framed


async def _prepend(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield first
    async for chunk in chunks:
        yield chunk


def _start_position(request: Request, query: Mapping[str, str], endpoint: Endpoint) -> Position | None:
    """Return the start position: after the last event that the client has, or some time ago; None means now."""
    last_id = request.header(b"last-event-id")
    if last_id:
        return read_position(last_id)
    since = query.get(SINCE)
    if not since or any(parameter.name == SINCE for parameter in endpoint.parameters):
        return None
    try:
        seconds = read_duration(since)
    except ValueError as problem:
        raise BadParameter(f"since={problem}.", hint="Send how long ago to begin, as in since=10m.") from None
    return Position(max(0, now_us() - round(seconds * 1e6)), 0)
