"""API keys in the form in which they are stored (without the secret), and the callers who present keys."""

from collections.abc import Mapping

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """The caller of a request.

    `scopes` are private, public, ingest, ingest:source:NAME, ingest:collection:NAME, query and query:endpoint:NAME;
    NAME may also be a UUID.
    """

    key_id: str
    scopes: frozenset[str]
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False

    @property
    def pin_items(self) -> tuple[tuple[str, str], ...]:
        """The pins as sorted pairs. Cache keys contain them, because pins restrict the names that a caller may see."""
        return tuple(sorted(self.pins.items()))


class KeyTerms(msgspec.Struct, frozen=True):
    """The permissions and limits of a key. `expires_at` is in seconds since 1970 UTC."""

    scopes: frozenset[str]
    note: str = ""
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False
    expires_at: float | None = None


def split_scopes(text: str) -> list[str]:
    """Split scopes only at ASCII spaces, as in RFC 6749, section 3.3; other white space is part of a scope."""
    return [word for word in text.split(" ") if word]


class Key(msgspec.Struct, frozen=True):
    id: str
    terms: KeyTerms
    created_at: float
    last_used_at: float | None = None
