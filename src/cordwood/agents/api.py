"""The interface through which tools use the service with one key: its permissions, and HTTP requests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from cordwood.errors import RefusedByService

# A function that is called with each chunk of a successful response. It returns False to end the request early.
OnChunk = Callable[[bytes], bool]

# The maximum size of a response that a tool reads as one JSON document.
MAX_JSON_DOCUMENT_BYTES = 4 * 2**20


class QueryableEndpoint(msgspec.Struct, frozen=True):
    """An endpoint that the key may query.

    `parameters` is the JSON Schema of the parameters that callers with the key may set.
    """

    name: str
    token: str
    description: str
    language: str
    sandboxable: bool
    max_limit: int
    parameters: dict[str, Any]


class KeyPermissions(msgspec.Struct, frozen=True):
    """The permissions of a key, as `/api/key` returns them."""

    id: str
    scopes: str
    pins: Mapping[str, str]
    redact: bool
    rate: str | None
    endpoints: Sequence[QueryableEndpoint]

    @property
    def is_private(self) -> bool:
        return "private" in self.scopes.split(" ")

    @property
    def may_read_streams(self) -> bool:
        """Whether the key may send SQL queries over whole streams.

        Pins would not restrict such a query, so a key with pins may not send it.
        """
        return self.is_private and not self.pins

    @property
    def sandboxable_endpoints(self) -> list[QueryableEndpoint]:
        """The endpoints that accept sandbox queries."""
        return [endpoint for endpoint in self.endpoints if endpoint.sandboxable]


class ApiCall(msgspec.Struct, frozen=True):
    """An HTTP request: a POST with `body_parameters` as JSON or, without `body_parameters`, a GET."""

    path: str
    body_parameters: Mapping[str, object] | None = None
    accepted_media_type: str = "application/json"

    @property
    def method(self) -> str:
        return "GET" if self.body_parameters is None else "POST"

    @property
    def body(self) -> bytes:
        return b"" if self.body_parameters is None else msgspec.json.encode(self.body_parameters)

    @property
    def headers(self) -> dict[str, str]:
        sent = {} if self.body_parameters is None else {"content-type": "application/json"}
        return {"accept": self.accepted_media_type, **sent}


class ApiResponse(msgspec.Struct, frozen=True):
    """The status and the headers of a response. The names of headers are in lower case.

    `error_body` is empty unless the response reports an error.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    error_body: bytes = b""

    def first_header_value(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class ApiClient(Protocol):
    """The interface of a client that sends requests to the service's HTTP API with one key.

    The service runs in this process or is reached over the network.
    """

    async def fetch_permissions(self) -> KeyPermissions:
        """Return the permissions of the key; raise a Fault if the key is invalid."""

    async def send(self, call: ApiCall, on_chunk: OnChunk) -> ApiResponse:
        """Send a request, and call `on_chunk` with each chunk of a successful response.

        The request ends early if this coroutine is cancelled, or if `on_chunk` returns False.
        """


def truncated_response_fault() -> RefusedByService:
    """Return the error for a response that ended before its body was complete."""
    return RefusedByService(
        "The query failed while its rows were sent.", hint="Ask for fewer rows, or for a shorter time."
    )


class BodyCollector:
    """Collects the chunks of a body in memory, up to a maximum size."""

    def __init__(self, max_bytes: int = MAX_JSON_DOCUMENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._chunks = bytearray()
        self.is_too_large = False

    def add_chunk(self, chunk: bytes) -> bool:
        self.is_too_large = self.is_too_large or len(self._chunks) + len(chunk) > self._max_bytes
        if not self.is_too_large:
            self._chunks += chunk
        return not self.is_too_large

    def decode_json(self) -> Any:
        """Return the value of the collected JSON; raise RefusedByService if the body is too large or not JSON."""
        if self.is_too_large:
            raise RefusedByService(
                f"The answer is larger than {self._max_bytes // 2**20} MiB.", hint="Ask for a part of it."
            )
        try:
            return msgspec.json.decode(bytes(self._chunks))
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise RefusedByService("The service answered with something other than JSON.") from problem
