"""A caller: the key that was presented, and its terms."""

from collections.abc import Mapping

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """A caller. `scopes` are those of the API: private, public, ingest, ingest:source:NAME, query, query:endpoint:NAME."""

    key_id: str
    scopes: frozenset[str]
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False

    @property
    def knows(self) -> tuple[tuple[str, str], ...]:
        """The pins of the key, which restrict the column and path names that it may see."""
        return tuple(sorted(self.pins.items()))
