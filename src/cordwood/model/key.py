"""A key as it is kept: its terms and its history, never the key itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Terms:
    """What a key may do, and what it is held to. `expires_at` is in seconds since 1970 UTC."""

    scopes: frozenset[str]
    note: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    terms: Terms
    created_at: float
    last_used_at: float | None = None
