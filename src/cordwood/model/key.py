"""Keys as stored: terms and history, without the secret."""

from collections.abc import Mapping

import msgspec


class Terms(msgspec.Struct, frozen=True):
    """The terms of a key. `expires_at` is in seconds since 1970 UTC."""

    scopes: frozenset[str]
    note: str = ""
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False
    expires_at: float | None = None


def scope_words(text: str) -> list[str]:
    """Split scopes at ASCII spaces alone (RFC 6749, 3.3): other white space is part of a word."""
    return [word for word in text.split(" ") if word]


class Key(msgspec.Struct, frozen=True):
    id: str
    terms: Terms
    created_at: float
    last_used_at: float | None = None
