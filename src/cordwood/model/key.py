"""A key as it is kept: its terms and its history, never the key itself."""

from collections.abc import Mapping

import msgspec


class Terms(msgspec.Struct, frozen=True):
    """What a key may do, and what it is held to. `expires_at` is in seconds since 1970 UTC."""

    scopes: frozenset[str]
    note: str = ""
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False
    expires_at: float | None = None


class Key(msgspec.Struct, frozen=True):
    id: str
    terms: Terms
    created_at: float
    last_used_at: float | None = None
