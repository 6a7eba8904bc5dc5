"""API keys in the form in which they are stored (without the secret), and the callers who present keys."""

from collections.abc import Mapping

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """The caller of a request, with the permissions and limits of the caller's key.

    Each of the `scopes` is private, public, ingest, ingest:source:NAME, ingest:collection:NAME, query or
    query:endpoint:NAME; NAME is the name or the UUID of a stream or an endpoint.
    """

    key_id: str
    scopes: frozenset[str]
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    rate_per_second: float | None = None
    redact_always: bool = False

    @property
    def sorted_pins(self) -> tuple[tuple[str, str], ...]:
        """The pins as sorted pairs of name and value, for use in cache keys.

        Callers with different pins must not share cached results, because pins restrict the names that a caller may
        see.
        """
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
    """Split the text of scopes at ASCII spaces only, as RFC 6749, section 3.3, requires.

    Other white space is part of a scope.
    """
    return [word for word in text.split(" ") if word]


class ApiKey(msgspec.Struct, frozen=True):
    id: str
    terms: KeyTerms
    created_at: float
    last_used_at: float | None = None
