"""Responses that must not be cached, because they depend on the key."""

from typing import Final

import msgspec

from cordwood.web.asgi import Header, Response

NO_STORE: Final[Header] = (b"cache-control", b"no-store")
JSON: Final = b"application/json; charset=utf-8"


def unkept_json(told: object, status: int = 200, *more: Header) -> Response:
    return Response(status, [(b"content-type", JSON), NO_STORE, *more], msgspec.json.encode(told))
