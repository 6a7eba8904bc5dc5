"""Look up the endpoint or stream of a request. The error for an unknown name suggests the most similar one."""

import asyncio
import re

from cordwood.access import may_manage, require_ingest
from cordwood.catalog.catalog import StreamMaker
from cordwood.errors import Forbidden, UnknownEndpoint, UnknownStream, did_you_mean
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.model.stream import Stream
from cordwood.web.lifecycle import Services


def existing_endpoint(services: Services, address: str) -> Endpoint:
    found = services.catalog.endpoint(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in services.catalog.endpoints()])
        hint = near or "GET /api/endpoints lists them, with a private key."
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=hint)
    return found


def existing_stream(services: Services, address: str) -> Stream:
    found = services.catalog.stream(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in services.catalog.streams()])
        hint = _stream_of_sub_query(services, address) or near or "Add it to your streams file."
        raise UnknownStream(f"There is no stream {address!r}.", hint=hint)
    return found


def _stream_of_sub_query(services: Services, name: str) -> str | None:
    """Return a hint if the name is a sub-query of an endpoint, which is often confused with its stream."""
    if not _SUB_QUERY.fullmatch(name):
        return None
    reads = re.compile(rf"\b{name}\s+as\s*\(.{{0,2000}}?\bfrom\s+`([^`]+)`", re.IGNORECASE | re.DOTALL)
    for endpoint in services.catalog.endpoints():
        found = reads.search(endpoint.sql)
        if found is not None:
            return f"{name} is a sub-query of the endpoint {endpoint.name}; the stream that it reads is {found[1]}."
    return None


_SUB_QUERY = re.compile(r"\w{1,60}", re.ASCII)


async def stream_of_events(services: Services, caller: Caller, name: str) -> Stream:
    """Return the stream for events, which is created if the settings allow it; otherwise raise UnknownStream."""
    found = services.catalog.stream(name)
    if found is not None or services.stream_maker is None:
        return found or existing_stream(services, name)
    try:
        return await _create_stream(services.stream_maker, caller, name)
    except UnknownStream as fault:
        fault.hint = _stream_of_sub_query(services, name) or fault.hint
        raise


async def _create_stream(maker: StreamMaker, caller: Caller, name: str) -> Stream:
    require_ingest(caller, maker.proposed(name))
    if caller.pins:
        raise Forbidden(
            f"There is no stream {name!r}, and a pinned key may not create one.",
            hint="Add it to the streams file, or send to it once with a key without pins.",
        )
    # No key id is charged: a private key may create any number of streams.
    key_id = None if may_manage(caller) else caller.key_id
    return await asyncio.to_thread(maker.make_stream, name, key_id)
