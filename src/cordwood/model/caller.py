"""Who presented a key, and what the key's terms are."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """`scopes` are those of the wire: private, public, ingest, ingest:source:…, query, query:endpoint:…"""

    key_id: str
    scopes: frozenset[str]
    pins: Mapping[str, str] = field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False
