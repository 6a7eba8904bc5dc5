"""What a caller asks of an endpoint, as it came over the wire."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import msgspec

from cordwood.model.caller import Caller
from cordwood.model.endpoint import Endpoint
from cordwood.model.rows import Rows


class Language(StrEnum):
    """What a sandbox query is written in."""

    SQL = "sql"
    LQL = "lql"


class SandboxText(msgspec.Struct, frozen=True, array_like=True):
    """A caller's own query, as it was sent."""

    language: Language
    text: str


class Format(msgspec.Struct, frozen=True):
    """A form that rows can be answered in. `encode` yields the body in pieces as rows come.

    `streams` says that a reader can use the first pieces before the last is made.
    """

    name: str
    media_type: str
    encode: Callable[[Rows], Iterator[bytes]]
    streams: bool = False


class Ask(msgspec.Struct, frozen=True):
    """`redact` is None where the caller leaves it to the endpoint; `fresh` asks for a run of the engine.

    `is_ad_hoc` where the endpoint was made for this one call. `counted_as` is the account of a caller without a key.
    `ignored` are the names that were sent and mean nothing here.
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
        """What the run is counted against where callers share: the key, or what stands for it."""
        return self.counted_as or self.caller.key_id

    @property
    def is_callers_own(self) -> bool:
        """Whether the query is the caller's: nobody knows what it costs before it was asked."""
        return self.is_ad_hoc or self.sandbox is not None

    @property
    def knows(self) -> tuple[tuple[str, str], ...]:
        """Whose names the answer may show, in a star or a notice: those of the key's pins, everybody's without any."""
        return self.caller.knows

    @property
    def redacts(self) -> bool:
        if self.caller.redact_always or self.redact is None:
            return self.caller.redact_always or self.endpoint.redact_pii
        return self.redact
