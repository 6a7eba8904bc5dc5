"""Authentication and authorization: the caller of a key, and what it may do."""

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from cordwood.catalog.key_store import Keys, digest
from cordwood.errors import BadKey, Forbidden, NoKey
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller, Key
from cordwood.model.stream import Stream

ANONYMOUS = Caller(key_id="anonymous", scopes=frozenset())

_HOW_TO_PRESENT = "Send a key in the header X-API-KEY, or as Authorization: Bearer."


class FixedKey(msgspec.Struct, frozen=True):
    """A key in the settings. It is not stored, and ends with the setting."""

    caller: Caller
    secret_digest: str


class SignedKeys(Protocol):
    """Verifies signed keys, which carry their own terms."""

    def caller(self, presented: str) -> Caller | None:
        """Return None if it is not a signed key; raise BadKey if it is an invalid one."""


class Access:
    """Authenticates keys: those in the settings first, then the store, then signed keys."""

    def __init__(
        self,
        keys: Keys,
        fixed: Sequence[FixedKey] = (),
        signed: SignedKeys | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys
        self._fixed = tuple(fixed)
        self.signed = signed
        self._clock = clock

    def who(self, presented: str | None) -> Caller:
        """Return the caller of a key; raise NoKey without one, BadKey if it is not in force."""
        if not presented:
            raise NoKey("This route needs a key, and none was sent.", hint=_HOW_TO_PRESENT)
        caller = self._find_caller(presented)
        if caller is None:
            raise BadKey("The key that was sent is not in force.", hint="It may be mistyped, revoked or expired.")
        return caller

    def visitor(self, presented: str | None, endpoint: Endpoint | None, address: str) -> Caller:
        """Return the caller of an endpoint. A public endpoint needs no key if it is addressed by its UUID."""
        if endpoint is None or endpoint.auth or address.lower() != str(endpoint.id):
            return self.who(presented)
        try:
            caller = self.who(presented)
        except (NoKey, BadKey):
            return ANONYMOUS
        return caller if may_query(caller, endpoint) else ANONYMOUS

    def stored(self, presented: str) -> Key | None:
        """Return the stored key of this secret, whether or not it is in force."""
        return self.keys.find(digest(presented))

    def _find_caller(self, presented: str) -> Caller | None:
        presented_digest = digest(presented)
        return (
            self._fixed_caller(presented_digest)
            or self._stored_caller(presented_digest)
            or (self.signed.caller(presented) if self.signed else None)
        )

    def _fixed_caller(self, presented_digest: str) -> Caller | None:
        # Compare with every key, so that the time does not depend on which one matches.
        matches = [key.caller for key in self._fixed if hmac.compare_digest(key.secret_digest, presented_digest)]
        return matches[0] if matches else None

    def _stored_caller(self, presented_digest: str) -> Caller | None:
        key = self.keys.find(presented_digest)
        if key is None or (key.terms.expires_at is not None and key.terms.expires_at <= self._clock()):
            return None
        self.keys.note_use(key.id)
        terms = key.terms
        return Caller(key.id, terms.scopes, terms.pins, terms.rate_per_second, terms.redact_always)


def may_query(caller: Caller, endpoint: Endpoint) -> bool:
    if not endpoint.auth and caller is ANONYMOUS:
        return True
    return bool(caller.scopes & {"private", "query"}) or _names(caller, "query:endpoint:", endpoint.name, endpoint.id)


def may_ingest(caller: Caller, stream: Stream) -> bool:
    return (
        bool(caller.scopes & {"private", "public", "ingest"})
        or _names(caller, "ingest:source:", stream.name, stream.id)
        or _names(caller, "ingest:collection:", stream.name, stream.id)
    )


def may_manage(caller: Caller) -> bool:
    return "private" in caller.scopes


def may_see_others(caller: Caller) -> bool:
    """Return whether the caller may know of requests of other keys: a private key that is not restricted."""
    return may_manage(caller) and not (caller.pins or caller.redact_always)


def may_query_something(caller: Caller) -> bool:
    """Return whether the caller may know that an endpoint does not exist."""
    return any(scope in ("private", "query") or scope.startswith("query:endpoint:") for scope in caller.scopes)


def may_ingest_something(caller: Caller) -> bool:
    """Return whether the caller may know that a stream does not exist."""
    return any(
        scope in ("private", "public", "ingest") or scope.startswith(("ingest:source:", "ingest:collection:"))
        for scope in caller.scopes
    )


def require_query(caller: Caller, endpoint: Endpoint | None) -> None:
    """Raise Forbidden unless the caller may query the endpoint; without one, unless it may query any."""
    allowed = may_query_something(caller) if endpoint is None else may_query(caller, endpoint)
    if not allowed:
        subject = f"the endpoint {endpoint.name}" if endpoint else "endpoints"
        raise Forbidden(f"This key may not query {subject}.", hint=_has(caller, "query"))


def require_ingest(caller: Caller, stream: Stream | None) -> None:
    """Raise Forbidden unless the caller may send events to the stream; without one, unless it may send to any."""
    allowed = may_ingest_something(caller) if stream is None else may_ingest(caller, stream)
    if not allowed:
        subject = f"to the stream {stream.name}" if stream else "events"
        raise Forbidden(f"This key may not send {subject}.", hint=_has(caller, "ingest"))


def require_management(caller: Caller) -> None:
    if not may_manage(caller):
        raise Forbidden("This route needs a private key.", hint=_has(caller, "private"))


def pinned(caller: Caller, given: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Return the parameters with the key's pins; raise Forbidden if the request gives another value.

    A pin without a parameter of its name in the endpoint would restrict nothing, so the call is refused.
    """
    declared = {parameter.name for parameter in endpoint.parameters}
    values = dict(given)
    for name, value in caller.pins.items():
        if name not in declared:
            raise Forbidden(f"This key is pinned to one {name}, and {endpoint.name} has no parameter of that name.")
        if values.get(name, value) != value:
            raise Forbidden(
                f"This key is pinned to {name} = {value!r} and may not ask for {values[name]!r}.",
                hint=f"Leave {name} out, and the key's own value is used.",
            )
        values[name] = value
    return values


def _names(caller: Caller, prefix: str, name: str, uuid: object) -> bool:
    targets = {scope.removeprefix(prefix) for scope in caller.scopes if scope.startswith(prefix)}
    return name in targets or str(uuid) in {target.lower() for target in targets}


def _has(caller: Caller, needed: str) -> str:
    scopes = ", ".join(sorted(caller.scopes)) or "none"
    return (
        f"It has the scopes: {scopes}. It needs private or {needed}."
        if needed != "private"
        else f"Its scopes: {scopes}."
    )
