"""The interface of the key store, which stores only digests of keys, and the parser of the terms of keys.

The terms of a key are its scopes, pins, rate and expiry. If a pin is a regular expression without anchors, a warning is
given, because it may match more than intended.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from cordwood.catalog.catalog import Catalog
from cordwood.catalog.toml_document import numeric_id
from cordwood.errors import BadApiKeyTerms
from cordwood.model.definitions import Endpoint, Stream, TextParameterKind
from cordwood.model.key import ApiKey, KeyTerms
from cordwood.settings.quantities import parse_duration, parse_rate


class NewKey(msgspec.Struct, frozen=True):
    """A newly created key, with its `secret`, which is shown to the user once and is not stored."""

    key: ApiKey
    secret: str


def make_secret() -> str:
    """Return a new secret: 256 random bits as text, with a prefix by which secret scanners recognize it."""
    return "cw_" + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Return the SHA-256 digest of a secret.

    A slow password hash is unnecessary, because secrets have 256 random bits.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class KeyStore(Protocol):
    def find(self, secret_digest: str) -> ApiKey | None:
        """Return the key whose secret has this digest; None if there is none.

        A change by another process must be visible within a second.
        """

    def active_keys(self) -> Sequence[ApiKey]:
        """Return all keys that are neither revoked nor expired, oldest first."""

    def create(self, terms: KeyTerms) -> NewKey:
        """Store a new key with these terms durably."""

    def revoke(self, key_id: str) -> bool:
        """Revoke a key at once; return False if the id is unknown."""

    def rotate(self, key_id: str, grace_seconds: float) -> NewKey | None:
        """Create a key with the terms of an existing key, and let the existing key expire after the grace period.

        Return None if there is no active key with this id.
        """

    def copy_database(self) -> bytes:
        """Return the content of the store's file, as a consistent copy for backups."""

    def record_use(self, key_id: str) -> None:
        """Note that the key is used now. This method must be fast, so the time may be written to the file later."""


# Names of pins and of parameters have only ASCII letters, because some other letters look like ASCII letters.
_PIN_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SCOPES_WITHOUT_TARGET = ("private", "public", "ingest", "query")
_TARGET_KIND_BY_SCOPE_PREFIX = {
    "ingest:source:": "stream",
    "ingest:collection:": "stream",
    "query:endpoint:": "endpoint",
}
_ANCHORED_REGEX_PATTERN = re.compile(r"(?:\^|\\A)(?P<inside>.*)(?:(?<!\\)\$|\\z)", re.DOTALL)
_MAX_KEY_NOTE_LENGTH = 500
_MAX_KEY_LIFETIME_SECONDS = 1000 * 365 * 86_400


class KeyTermsInput(msgspec.Struct, frozen=True):
    """The terms of a key as a user writes them: scopes as words, the duration and the rate as texts with units."""

    scopes: Sequence[str]
    note: str = ""
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    expires_in: str | None = None
    rate: str | None = None
    redact_always: bool = False


def read_key_terms(written: KeyTermsInput, catalog: Catalog, now: float) -> KeyTerms:
    """Check the terms of a key that a user wrote; raise BadApiKeyTerms, which names the field, for invalid terms."""
    return KeyTerms(
        scopes=frozenset(_resolve_scope(scope, catalog) for scope in _require_any_scope(written.scopes)),
        note=_check_note(written.note),
        pins=_check_pins(written.pins),
        rate_per_second=_parse_quantity("rate", parse_rate, written.rate),
        redact_always=written.redact_always,
        expires_at=_expiry_time(written.expires_in, now),
    )


def unanchored_pin_warnings(terms: KeyTerms, catalog: Catalog) -> Iterator[str]:
    """Yield a warning for each pin whose value is a regular expression without anchors at both ends."""
    for endpoint in catalog.endpoints():
        for parameter in endpoint.parameters:
            pin = terms.pins.get(parameter.name)
            if (
                pin is not None
                and parameter.kind is TextParameterKind.REGEX
                and _terms_allow_querying(terms, endpoint)
                and not is_anchored(pin)
            ):
                yield (
                    f"{parameter.name} is a pattern in {endpoint.name}, and {pin!r} is not anchored at both ends:"
                    f" it also matches {pin + '2'!r}. Write it as ^…$."
                )


def read_rotation_grace_seconds(text: str | None) -> float:
    """Convert the text of a grace period to seconds, or None to 0; raise BadApiKeyTerms if it is invalid."""
    return _require_representable_seconds("grace", _parse_quantity("grace", parse_duration, text) or 0.0)


def is_valid_pin_name(name: str) -> bool:
    """Return whether a text can be the name of a parameter, and therefore of a pin."""
    return _PIN_NAME_PATTERN.fullmatch(name) is not None


def is_anchored(pattern: str) -> bool:
    """Return whether a pattern matches only whole texts, as `^a$` does; `^a|b$` also matches parts of texts."""
    match = _ANCHORED_REGEX_PATTERN.fullmatch(pattern)
    return match is not None and not _has_top_level_alternative(match["inside"])


def _has_top_level_alternative(inside: str) -> bool:
    depth, escaped, in_class = 0, False, False
    for character in inside:
        if escaped or character == "\\":
            escaped = not escaped
        elif in_class:
            in_class = character != "]"
        elif character == "|" and depth == 0:
            return True
        else:
            in_class = character == "["
            depth += {"(": 1, ")": -1}.get(character, 0)
    return False


def _require_any_scope(scopes: Sequence[str]) -> Sequence[str]:
    if not scopes:
        raise BadApiKeyTerms("scopes", "can't be blank")
    return scopes


def _resolve_scope(scope: str, catalog: Catalog) -> str:
    if scope in _SCOPES_WITHOUT_TARGET:
        return scope
    prefix = next((prefix for prefix in _TARGET_KIND_BY_SCOPE_PREFIX if scope.startswith(prefix)), None)
    if prefix is None:
        known = ", ".join((*_SCOPES_WITHOUT_TARGET, *(f"{prefix}NAME" for prefix in _TARGET_KIND_BY_SCOPE_PREFIX)))
        raise BadApiKeyTerms("scopes", "contains unrecognized scope", hint=f"{scope!r} is none of: {known}.")
    kind, target = _TARGET_KIND_BY_SCOPE_PREFIX[prefix], scope.removeprefix(prefix)
    target_object = catalog.stream(target) if kind == "stream" else catalog.endpoint(target)
    # A scope cannot contain spaces. If the name of an endpoint or a stream has spaces, the scope has its UUID instead.
    if target_object is not None and target.split() == [target]:
        return scope
    return f"{prefix}{(target_object or _find_by_numeric_id(kind, target, catalog)).id}"


def _find_by_numeric_id(kind: str, target: str, catalog: Catalog) -> Endpoint | Stream:
    """Return the endpoint or the stream with a numeric id, which clients of Logflare send.

    In the key's scope, the UUID replaces the numeric id, because an object that is created later may have the same
    numeric id.
    """
    candidates: Sequence[Endpoint | Stream] = catalog.streams() if kind == "stream" else catalog.endpoints()
    matches = [candidate for candidate in candidates if str(numeric_id(candidate.id)) == target]
    if not matches:
        raise BadApiKeyTerms("scopes", f"names an unknown {kind}", hint=f"There is no {kind} {target!r}.")
    if len(matches) > 1:
        names = ", ".join(candidate.name for candidate in matches)
        raise BadApiKeyTerms(
            "scopes", f"names more than one {kind}", hint=f"{target} is the id of {names}: use the name."
        )
    return matches[0]


def _check_note(note: str) -> str:
    if len(note) > _MAX_KEY_NOTE_LENGTH:
        raise BadApiKeyTerms("description", f"should be at most {_MAX_KEY_NOTE_LENGTH} character(s)")
    return note


def _check_pins(pins: Mapping[str, str]) -> dict[str, str]:
    for name in pins:
        if not is_valid_pin_name(name):
            raise BadApiKeyTerms("pins", "must name parameters", hint=f"{name!r} is not a valid name of a parameter.")
    return dict(pins)


def _expiry_time(expires_in: str | None, now: float) -> float | None:
    seconds = _parse_quantity("expires_in", parse_duration, expires_in)
    if seconds is None:
        return None
    if seconds <= 0:
        raise BadApiKeyTerms("expires_in", "must be more than 0")
    return now + _require_representable_seconds("expires_in", seconds)


def _require_representable_seconds(name: str, seconds: float) -> float:
    """Return the duration unchanged; raise BadApiKeyTerms if it is longer than 1000 years.

    The end of a longer duration might be after the last date that can be represented.
    """
    if seconds > _MAX_KEY_LIFETIME_SECONDS:
        raise BadApiKeyTerms(name, "must be at most 1000 years", hint="Leave it out for a key that does not expire.")
    return seconds


def _parse_quantity(name: str, read: Callable[[str], float], text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as problem:
        raise BadApiKeyTerms(name, "is invalid", hint=f"{problem}.") from problem


def _terms_allow_querying(terms: KeyTerms, endpoint: Endpoint) -> bool:
    names = {f"query:endpoint:{endpoint.name}", f"query:endpoint:{endpoint.id}"}
    return bool(terms.scopes & ({"private", "query"} | names))
