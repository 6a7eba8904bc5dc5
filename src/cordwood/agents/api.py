"""What the tools need of the service: what a key may do, and requests to the routes of HTTP with that key."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from cordwood.errors import Refused

# Receives the body of a success in pieces; it returns False if it needs no more of it.
Take = Callable[[bytes], bool]

# No document that a tool reads as a whole is larger.
MOST_DOCUMENT_BYTES = 4 * 2**20


class OfferedEndpoint(msgspec.Struct, frozen=True):
    """An endpoint that a key may query. `parameters` is the JSON Schema of those that it may send."""

    name: str
    token: str
    description: str
    language: str
    sandboxable: bool
    max_limit: int
    parameters: dict[str, Any]


class KeyView(msgspec.Struct, frozen=True):
    """What a key may do: the answer of `/api/key`."""

    id: str
    scopes: str
    pins: Mapping[str, str]
    redact: bool
    rate: str | None
    endpoints: Sequence[OfferedEndpoint]

    @property
    def is_private(self) -> bool:
        return "private" in self.scopes.split(" ")

    @property
    def may_read_streams(self) -> bool:
        """Whether it may send SQL over whole streams, which a pin would not restrict."""
        return self.is_private and not self.pins

    @property
    def sandboxes(self) -> list[OfferedEndpoint]:
        """The endpoints that take a query of the caller's own."""
        return [endpoint for endpoint in self.endpoints if endpoint.sandboxable]


class ApiCall(msgspec.Struct, frozen=True):
    """A request of HTTP: a GET, or a POST if it has parameters, which are sent as JSON."""

    path: str
    parameters: Mapping[str, object] | None = None
    accept: str = "application/json"

    @property
    def method(self) -> str:
        return "GET" if self.parameters is None else "POST"

    @property
    def body(self) -> bytes:
        return b"" if self.parameters is None else msgspec.json.encode(self.parameters)

    @property
    def headers(self) -> dict[str, str]:
        sent = {} if self.parameters is None else {"content-type": "application/json"}
        return {"accept": self.accept, **sent}


class Reply(msgspec.Struct, frozen=True):
    """The response to a call: `body` only if it is an error. Names of headers are in lower case."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def all_of(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class KeyedApi(Protocol):
    """The API of the service with one key, over HTTP or inside the process."""

    async def key(self) -> KeyView:
        """Return what the key may do; raise a Fault if it is not in force."""

    async def send(self, call: ApiCall, take: Take) -> Reply:
        """Send a request. Cancelling this coroutine, or a `take` that returns False, ends the request at the service."""


def ended_early() -> Refused:
    """Return the error for a response whose body is incomplete."""
    return Refused("The query failed while its rows were sent.", hint="Ask for fewer rows, or for a shorter time.")


class WholeBody:
    """Collects a body of a bounded size."""

    def __init__(self, most_bytes: int = MOST_DOCUMENT_BYTES) -> None:
        self._most = most_bytes
        self._pieces = bytearray()
        self.is_cut = False

    def take(self, piece: bytes) -> bool:
        self.is_cut = self.is_cut or len(self._pieces) + len(piece) > self._most
        if not self.is_cut:
            self._pieces += piece
        return not self.is_cut

    def json(self) -> Any:
        """Return the value; raise Refused if the body is too large or is not JSON."""
        if self.is_cut:
            raise Refused(f"The answer is larger than {self._most // 2**20} MiB.", hint="Ask for a part of it.")
        try:
            return msgspec.json.decode(bytes(self._pieces))
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise Refused("The service answered with something else than JSON.") from problem
