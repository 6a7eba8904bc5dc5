"""Who presented a key, and what the key's terms are."""

from collections.abc import Mapping

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """`scopes` are those of the wire: private, public, ingest, ingest:source:…, query, query:endpoint:…"""

    key_id: str
    scopes: frozenset[str]
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False

    @property
    def knows(self) -> tuple[tuple[str, str], ...]:
        """Whose names the key may be told: those of its pins, everybody's without any."""
        return tuple(sorted(self.pins.items()))
