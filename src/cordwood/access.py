"""Authentication and authorization: find the caller to whom a key belongs, and check the caller's permissions."""

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from cordwood.catalog.key_store import KeyStore, hash_secret
from cordwood.errors import BadApiKey, Forbidden, MissingApiKey
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.key import ApiKey, Caller

ANONYMOUS_CALLER = Caller(key_id="anonymous", scopes=frozenset())

_HOW_TO_SEND_A_KEY = "Send a key in the header X-API-KEY, or as Authorization: Bearer."


class FixedKey(msgspec.Struct, frozen=True):
    """A key from the service's settings; it is not in the key store, and is valid as long as the settings have it."""

    caller: Caller
    secret_digest: str


class SignedKeyVerifier(Protocol):
    """The interface of a verifier of signed keys, which are tokens (JWT) that contain their own scopes and limits."""

    def find_caller(self, key_text: str) -> Caller | None:
        """Return the caller of a signed key; None if the text is no token; raise BadApiKey if the token is invalid."""


class Authenticator:
    """An authenticator of keys from three sources: the settings, the key store, and tokens that are signed."""

    def __init__(
        self,
        keys: KeyStore,
        fixed_keys: Sequence[FixedKey] = (),
        signed: SignedKeyVerifier | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key_store = keys
        self._fixed_keys = tuple(fixed_keys)
        self.signed_key_verifier = signed
        self._wall_clock_seconds = clock

    def authenticate(self, key_text: str | None) -> Caller:
        """Return the caller to whom a key belongs.

        Raise MissingApiKey if no key was sent, and BadApiKey if the key is unknown, revoked or expired.
        """
        if not key_text:
            raise MissingApiKey("This route needs a key, and none was sent.", hint=_HOW_TO_SEND_A_KEY)
        caller = self._find_caller(key_text)
        if caller is None:
            raise BadApiKey("The key that was sent is not in force.", hint="It may be mistyped, revoked or expired.")
        return caller

    def authenticate_for_endpoint(self, key_text: str | None, endpoint: Endpoint | None, address: str) -> Caller:
        """Return the caller of a request for an endpoint; `address` is the name or UUID that the request contains.

        A public endpoint that is addressed by its UUID needs no key: without a valid key, the caller is anonymous.
        """
        if endpoint is None or endpoint.requires_key or address.lower() != str(endpoint.id):
            return self.authenticate(key_text)
        try:
            caller = self.authenticate(key_text)
        except (MissingApiKey, BadApiKey):
            return ANONYMOUS_CALLER
        return caller if may_query(caller, endpoint) else ANONYMOUS_CALLER

    def find_stored_key(self, key_text: str) -> ApiKey | None:
        """Return the key in the key store that has this secret, even if the key has expired; None if there is none."""
        return self.key_store.find(hash_secret(key_text))

    def _find_caller(self, key_text: str) -> Caller | None:
        presented_digest = hash_secret(key_text)
        return (
            self._find_caller_of_fixed_key(presented_digest)
            or self._find_caller_in_key_store(presented_digest)
            or (self.signed_key_verifier.find_caller(key_text) if self.signed_key_verifier else None)
        )

    def _find_caller_of_fixed_key(self, presented_digest: str) -> Caller | None:
        # Compare with every fixed key, so that the time taken does not reveal which key matches.
        matches = [key.caller for key in self._fixed_keys if hmac.compare_digest(key.secret_digest, presented_digest)]
        return matches[0] if matches else None

    def _find_caller_in_key_store(self, presented_digest: str) -> Caller | None:
        key = self.key_store.find(presented_digest)
        if key is None or (key.terms.expires_at is not None and key.terms.expires_at <= self._wall_clock_seconds()):
            return None
        self.key_store.record_use(key.id)
        terms = key.terms
        return Caller(key.id, terms.scopes, terms.pins, terms.rate_per_second, terms.redact_always)


def may_query(caller: Caller, endpoint: Endpoint) -> bool:
    if not endpoint.requires_key and caller is ANONYMOUS_CALLER:
        return True
    return bool(caller.scopes & {"private", "query"}) or _has_scope_for(
        caller, "query:endpoint:", endpoint.name, endpoint.id
    )


def may_ingest(caller: Caller, stream: Stream) -> bool:
    return (
        bool(caller.scopes & {"private", "public", "ingest"})
        or _has_scope_for(caller, "ingest:source:", stream.name, stream.id)
        or _has_scope_for(caller, "ingest:collection:", stream.name, stream.id)
    )


def may_manage_service(caller: Caller) -> bool:
    return "private" in caller.scopes


def may_see_all_requests(caller: Caller) -> bool:
    """Return whether the caller may see requests made with other keys.

    This requires a private key without pins and without forced redaction.
    """
    return may_manage_service(caller) and not (caller.pins or caller.redact_always)


def may_query_some_endpoint(caller: Caller) -> bool:
    """Return whether the caller may query at least one endpoint.

    Other callers are not told whether an endpoint exists.
    """
    return any(scope in ("private", "query") or scope.startswith("query:endpoint:") for scope in caller.scopes)


def may_ingest_some_stream(caller: Caller) -> bool:
    """Return whether the caller may send events to at least one stream.

    Other callers are not told whether a stream exists.
    """
    return any(
        scope in ("private", "public", "ingest") or scope.startswith(("ingest:source:", "ingest:collection:"))
        for scope in caller.scopes
    )


def require_query_permission(caller: Caller, endpoint: Endpoint | None) -> None:
    """Raise Forbidden unless the caller may query the endpoint.

    If `endpoint` is None, the caller must be permitted to query at least one endpoint.
    """
    allowed = may_query_some_endpoint(caller) if endpoint is None else may_query(caller, endpoint)
    if not allowed:
        subject = f"the endpoint {endpoint.name}" if endpoint else "endpoints"
        raise Forbidden(f"This key may not query {subject}.", hint=_missing_scope_hint(caller, "query"))


def require_ingest_permission(caller: Caller, stream: Stream | None) -> None:
    """Raise Forbidden unless the caller may send events to the stream.

    If `stream` is None, the caller must be permitted to send events to at least one stream.
    """
    allowed = may_ingest_some_stream(caller) if stream is None else may_ingest(caller, stream)
    if not allowed:
        subject = f"to the stream {stream.name}" if stream else "events"
        raise Forbidden(f"This key may not send {subject}.", hint=_missing_scope_hint(caller, "ingest"))


def require_management_permission(caller: Caller) -> None:
    if not may_manage_service(caller):
        raise Forbidden("This route needs a private key.", hint=_missing_scope_hint(caller, "private"))


def apply_pinned_parameters(caller: Caller, parameters: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Return the parameters with the key's pins added; raise Forbidden if a parameter contradicts a pin.

    Forbidden is also raised if the endpoint does not declare a pinned parameter, because the pin would have no effect.
    """
    declared = {parameter.name for parameter in endpoint.parameters}
    values = dict(parameters)
    for name, value in caller.pins.items():
        if name not in declared:
            raise Forbidden(f"This key is pinned to one {name}, and {endpoint.name} has no parameter of that name.")
        if values.get(name, value) != value:
            raise Forbidden(
                f"This key is pinned to {name} = {value!r} and may not ask for {values[name]!r}.",
                hint=f"Omit {name}: the value of the key is used.",
            )
        values[name] = value
    return values


def _has_scope_for(caller: Caller, prefix: str, name: str, uuid: object) -> bool:
    targets = {scope.removeprefix(prefix) for scope in caller.scopes if scope.startswith(prefix)}
    return name in targets or str(uuid) in {target.lower() for target in targets}


def _missing_scope_hint(caller: Caller, required_scope: str) -> str:
    scopes = ", ".join(sorted(caller.scopes)) or "none"
    return (
        f"It has the scopes: {scopes}. It needs private or {required_scope}."
        if required_scope != "private"
        else f"Its scopes: {scopes}."
    )
