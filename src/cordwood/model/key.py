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


def scope_words(text: str) -> list[str]:
    """Split a text of scopes at ASCII spaces alone (RFC 6749, 3.3): no other white space makes two scopes of one."""
    return [word for word in text.split(" ") if word]


class Key(msgspec.Struct, frozen=True):
    id: str
    terms: Terms
    created_at: float
    last_used_at: float | None = None
