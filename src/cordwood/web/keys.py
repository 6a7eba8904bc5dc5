"""Routes for keys, which need a private key: list, create, rotate and revoke keys."""

import asyncio
import re
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from cordwood.catalog.key_store import (
    KeyTermsInput,
    NewKey,
    read_key_terms,
    read_rotation_grace_seconds,
    unanchored_pin_warnings,
)
from cordwood.errors import BadApiKeyTerms, BadBody, UnknownApiKey, did_you_mean
from cordwood.model.json_checks import describe_json_error, find_duplicate_member_name
from cordwood.model.key import ApiKey, split_scopes
from cordwood.observe.observation import Observer
from cordwood.settings.quantities import format_rate
from cordwood.web.asgi import Request, Response, no_store_json_response
from cordwood.web.credentials import audit_key_change, require_unrestricted_caller
from cordwood.web.request_body import read_body
from cordwood.web.services import Services, WebOptions

T = TypeVar("T")

KEY_PATH_REGEX = re.compile(rb"/api/access-tokens/([^/]+)")
KEY_ROTATION_PATH_REGEX = re.compile(rb"/api/access-tokens/([^/]+)/rotate")

# The accepted values of `redact`. Any other value is refused, because its author might believe that it enables
# redaction.
_REDACT_VALUES = {None: False, False: False, "false": False, True: True, "true": True, "always": True}


class KeyRequest(msgspec.Struct):
    """The members of a request for a new key that are terms of the key. Other members are ignored."""

    scopes: str | list[str] = "public"
    description: str | None = None
    pins: dict[str, str] = {}
    expires_in: str | int | float | None = None
    rate: str | None = None
    redact: bool | str | None = None

    def to_key_terms_input(self) -> KeyTermsInput:
        scopes = split_scopes(self.scopes) if isinstance(self.scopes, str) else self.scopes
        expires_in = self.expires_in if isinstance(self.expires_in, str | None) else f"{self.expires_in:.6f}s"
        redact = _REDACT_VALUES.get(self.redact)
        if redact is None:
            raise BadApiKeyTerms("redact", "is invalid", hint="It is true, false or always.")
        return KeyTermsInput(scopes, self.description or "", self.pins, expires_in, self.rate, redact_always=redact)


_KEY_TERM_NAMES = frozenset(KeyRequest.__struct_fields__)
# Terms that may also be sent in the query string, as Logflare's clients do. Terms that restrict a key are allowed only
# in the body.
_QUERY_STRING_TERMS = ("description", "scopes")


class RotationRequest(msgspec.Struct):
    """The body of a request to rotate a key. The old key stays valid for the time `grace`."""

    grace: str | None = None


async def list_keys(request: Request, services: Services) -> Response:
    _require_unrestricted_key(request, services)
    return no_store_json_response([_key_json(key) for key in services.authenticator.key_store.active_keys()])


async def create_key(request: Request, services: Services, options: WebOptions, observer: Observer) -> Response:
    query = _require_unrestricted_key(request, services)
    body = await read_body(request, options.query_body_bounds)
    key_request = _with_query_string_terms(_decode_request(body, KeyRequest), _member_names(body), query)
    terms = read_key_terms(key_request.to_key_terms_input(), services.catalog, time.time())
    new = await asyncio.to_thread(services.authenticator.key_store.create, terms)
    audit_key_change(observer, request, "created", new.key.id, terms)
    return _new_key_response(new, services)


async def rotate_key(
    request: Request, services: Services, options: WebOptions, observer: Observer, key_id: str
) -> Response:
    _require_unrestricted_key(request, services)
    key_request = _decode_request(await read_body(request, options.query_body_bounds), RotationRequest)
    grace_seconds = read_rotation_grace_seconds(key_request.grace)
    new = await asyncio.to_thread(services.authenticator.key_store.rotate, key_id, grace_seconds)
    if new is None:
        raise _unknown_key_fault()
    audit_key_change(observer, request, "rotated", key_id, new.key.terms)
    return _new_key_response(new, services)


async def revoke_key(request: Request, services: Services, observer: Observer, key_id: str) -> Response:
    """Revoke the key with the id `key_id`. As in Logflare, this may also be the key itself instead of its id."""
    _require_unrestricted_key(request, services)
    found = services.authenticator.find_stored_key(key_id)
    key_id = found.id if found else key_id
    if not await asyncio.to_thread(services.authenticator.key_store.revoke, key_id):
        raise _unknown_key_fault()
    audit_key_change(observer, request, "revoked", key_id)
    return Response(204, [])


def _require_unrestricted_key(request: Request, services: Services) -> Mapping[str, str]:
    """Return the query string; raise Forbidden unless the caller's key is private and unrestricted.

    If a restricted key were allowed, it could create an unrestricted key.
    """
    refusal = "This key is restricted, and could otherwise create an unrestricted one."
    return require_unrestricted_caller(request, services, refusal)[1]


def _decode_request(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body.decode() or "{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadBody(f"The body cannot be read: {describe_json_error(problem, body)}.") from problem


def _member_names(body: bytes) -> AbstractSet[str]:
    """Return the names of the body's members; raise BadBody or BadApiKeyTerms for a bad name.

    A name is bad if it occurs twice, or is a misspelled term. If the misspelled member `pin` were ignored instead, a
    key without pins would be created, which could read every project.
    """
    twice = find_duplicate_member_name(body)
    if twice is not None:
        raise BadBody(f"The body has the name {twice[:40]!r} twice in one object.")
    names = _decode_request(body, dict[str, msgspec.Raw]).keys()
    _check_term_names(names)
    return names


def _check_term_names(names: AbstractSet[str]) -> None:
    for name in names - _KEY_TERM_NAMES:
        meant = did_you_mean(name, _KEY_TERM_NAMES)
        if meant is not None:
            raise BadApiKeyTerms(name, "is not a term of a key", hint=meant)


def _with_query_string_terms(
    key_request: KeyRequest, in_body: AbstractSet[str], query: Mapping[str, str]
) -> KeyRequest:
    """Add the terms that were sent in the query string.

    Raise BadApiKeyTerms for a term that must be sent in the body, or that was sent in the body as well.
    """
    _check_term_names(query.keys())
    for name in query.keys() & _KEY_TERM_NAMES:
        if name not in _QUERY_STRING_TERMS:
            raise BadApiKeyTerms(name, "must be in the body", hint="In the address stand only: description, scopes.")
        if name in in_body:
            raise BadApiKeyTerms(name, "is given twice", hint="It is in the body and in the address: send one of them.")
    return msgspec.structs.replace(key_request, **{name: query[name] for name in _QUERY_STRING_TERMS if name in query})


def _unknown_key_fault() -> UnknownApiKey:
    return UnknownApiKey("There is no key of this id.")


def _new_key_response(new: NewKey, services: Services) -> Response:
    fields = _key_json(new.key) | {
        "token": new.secret,
        "warnings": list(unanchored_pin_warnings(new.key.terms, services.catalog)),
    }
    return no_store_json_response(fields, 201)


def _key_json(key: ApiKey) -> dict[str, object]:
    terms = key.terms
    return {
        "id": int(key.id),
        "token": None,
        "scopes": " ".join(sorted(terms.scopes)),
        "description": terms.note,
        "inserted_at": _iso_time(key.created_at),
        "pins": dict(terms.pins),
        "expires_at": _iso_time(terms.expires_at),
        "rate": None if terms.rate_per_second is None else format_rate(terms.rate_per_second),
        "redact": terms.redact_always,
        "last_used_at": _iso_time(key.last_used_at),
    }


def _iso_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
