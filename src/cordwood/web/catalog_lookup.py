"""Find the endpoint or stream of a request; otherwise raise an error that suggests the nearest name."""

import asyncio
import re

from cordwood.access import require_ingest
from cordwood.catalog.catalog import StreamMaker
from cordwood.errors import Forbidden, UnknownEndpoint, UnknownStream, did_you_mean
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.model.stream import Stream
from cordwood.web.standing import Rooms


def existing_endpoint(rooms: Rooms, address: str) -> Endpoint:
    found = rooms.catalog.endpoint(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in rooms.catalog.endpoints()])
        hint = near or "GET /api/endpoints lists them, with a private key."
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=hint)
    return found


def existing_stream(rooms: Rooms, address: str) -> Stream:
    found = rooms.catalog.stream(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in rooms.catalog.streams()])
        hint = _stream_of_sub_query(rooms, address) or near or "Add it to your streams file."
        raise UnknownStream(f"There is no stream {address!r}.", hint=hint)
    return found


def _stream_of_sub_query(rooms: Rooms, name: str) -> str | None:
    """Return a hint if the name is a sub-query of an endpoint: the two are often confused."""
    if not _SUB_QUERY.fullmatch(name):
        return None
    reads = re.compile(rf"\b{name}\s+as\s*\(.{{0,2000}}?\bfrom\s+`([^`]+)`", re.IGNORECASE | re.DOTALL)
    for endpoint in rooms.catalog.endpoints():
        found = reads.search(endpoint.sql)
        if found is not None:
            return f"{name} is a sub-query of the endpoint {endpoint.name}; the stream that it reads is {found[1]}."
    return None


_SUB_QUERY = re.compile(r"\w{1,60}", re.ASCII)


async def stream_of_events(rooms: Rooms, caller: Caller, name: str) -> Stream:
    """Return the stream to send events to, created on demand if the settings allow it; else raise UnknownStream."""
    found = rooms.catalog.stream(name)
    if found is not None or rooms.maker is None:
        return found or existing_stream(rooms, name)
    try:
        return await _made(rooms.maker, caller, name)
    except UnknownStream as fault:
        fault.hint = _stream_of_sub_query(rooms, name) or fault.hint
        raise


async def _made(maker: StreamMaker, caller: Caller, name: str) -> Stream:
    require_ingest(caller, maker.proposed(name))
    if caller.pins:
        raise Forbidden(
            f"There is no stream {name!r}, and a pinned key may not create one.",
            hint="Add it to the streams file, or send to it once with a key without pins.",
        )
    return await asyncio.to_thread(maker.make_stream, name)
