"""A query request: the endpoint, the caller, raw parameters, the sandbox query and the answer format."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import msgspec

from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.model.rows import Rows


class Language(StrEnum):
    """The language of a sandbox query."""

    SQL = "sql"
    LQL = "lql"


class SandboxText(msgspec.Struct, frozen=True, array_like=True):
    """A sandbox query as it was sent."""

    language: Language
    text: str


class Format(msgspec.Struct, frozen=True):
    """An answer format. `encode` yields the body in chunks while rows arrive.

    `streams` is true if a client can use the first chunks before the last one is written.
    """

    name: str
    media_type: str
    encode: Callable[[Rows], Iterator[bytes]]
    streams: bool = False


class QueryRequest(msgspec.Struct, frozen=True):
    """A query request.

    `redact` is None if the caller leaves redaction to the endpoint. `fresh` bypasses the cache. `is_ad_hoc` is true if
    the endpoint was made for this request. `counted_as` is the account of a caller without a key. `ignored` lists the
    request parameters that have no meaning here.
    """

    endpoint: Endpoint
    caller: Caller
    format: Format
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    sandbox: SandboxText | None = None
    redact: bool | None = None
    fresh: bool = False
    is_ad_hoc: bool = False
    counted_as: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """The account that the run is charged to where callers share a limit: the key id or its substitute."""
        return self.counted_as or self.caller.key_id

    @property
    def is_callers_own(self) -> bool:
        """Whether the caller wrote the query (sandbox or ad hoc), so that its cost is not known in advance."""
        return self.is_ad_hoc or self.sandbox is not None

    @property
    def pin_items(self) -> tuple[tuple[str, str], ...]:
        """The pins of the key: `*` and notices show only column names of events that match them."""
        return self.caller.pin_items

    @property
    def redacts(self) -> bool:
        if self.caller.redact_always or self.redact is None:
            return self.caller.redact_always or self.endpoint.redact_pii
        return self.redact
