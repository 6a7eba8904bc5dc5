"""What a request names: the endpoint or stream, or the refusal with the nearest name or where to look."""

from cordwood.errors import UnknownEndpoint, UnknownStream, did_you_mean
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream
from cordwood.web.standing import Rooms


def existing_endpoint(rooms: Rooms, address: str) -> Endpoint:
    found = rooms.catalog.endpoint(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in rooms.catalog.endpoints()])
        hint = near or "GET /api/endpoints lists them, to a private key."
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=hint)
    return found


def existing_stream(rooms: Rooms, address: str) -> Stream:
    found = rooms.catalog.stream(address)
    if found is None:
        near = did_you_mean(address, [one.name for one in rooms.catalog.streams()])
        hint = near or "A stream of your own is named in the streams file."
        raise UnknownStream(f"There is no stream {address!r}.", hint=hint)
    return found
