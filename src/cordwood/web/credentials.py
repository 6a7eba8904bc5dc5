"""The key of a request: where it is sent, and which account is charged. Also the audit log of refusals and changes."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address

import msgspec

from cordwood.access import ANONYMOUS_CALLER, may_see_all_requests, require_management_permission
from cordwood.errors import BadApiKey, ConflictingApiKeys, Fault, Forbidden, MissingApiKey, RequestRateExceeded
from cordwood.model.key import Caller, KeyTerms
from cordwood.observe.observation import ActionAudited, Observer
from cordwood.web.asgi import Request, iterate_urlencoded, parse_urlencoded
from cordwood.web.services import Services

BEARER_PREFIX = b"bearer "
# Headers in which other services expect keys. cordwood does not read them, but mentions them in a hint.
_UNSUPPORTED_KEY_HEADERS = (b"apikey", b"api-key", b"x-api-token", b"x-auth-token", b"x-access-token", b"access-token")
# The length of an IPv6 prefix in bits. All addresses with the same prefix count as one subscriber.
_IPV6_SUBSCRIBER_PREFIX_BITS = 64


class KeyPlaces(msgspec.Struct, frozen=True):
    """The places in a request where the clients of a protocol send the key, in addition to the usual places.

    The usual places are `Authorization: Bearer`, `X-API-KEY` and `?api_key=`. `key_extractors_by_scheme` has further
    schemes of Authorization in lower case, each with the function that extracts the key from the header's value.
    """

    key_extractors_by_scheme: Mapping[bytes, Callable[[bytes], bytes]] = msgspec.field(default_factory=dict)
    headers: tuple[bytes, ...] = ()
    query_parameters: tuple[str, ...] = ()


DEFAULT_KEY_PLACES = KeyPlaces()


def key_of_basic_credentials(value: bytes) -> bytes:
    """Return the password of Basic credentials, or the user name if the password is empty."""
    user, _, password = _decode_base64(value).partition(b":")
    return password or user


def key_of_id_key_pair(value: bytes) -> bytes:
    """Return the key in a Base64 text of `id:key`, or the text itself if it is not such a pair."""
    _, _, key = _decode_base64(value).partition(b":")
    return key or value


def _decode_base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return b""


def presented_key(
    request: Request, query: Mapping[str, str], more_places: KeyPlaces = DEFAULT_KEY_PLACES
) -> str | None:
    """Return the key that was sent with the request, or None; raise ConflictingApiKeys if two different keys were sent.

    It is not an error if the same key was sent in several places.
    """
    places: dict[str, str] = {}
    for place, key in _find_keys(request, query, more_places):
        places.setdefault(key, place)
        if len(places) > 1:
            raise ConflictingApiKeys(
                f"Two different keys were sent: in {' and in '.join(places.values())}.",
                hint="Send one of them. A proxy may have added the other.",
            )
    return next(iter(places), None)


def _find_keys(request: Request, query: Mapping[str, str], more_places: KeyPlaces) -> Iterator[tuple[str, str]]:
    """Yield each place of the request where a key was sent, with the key."""
    for name, value in request.scope["headers"]:
        key = _key_in_header(name, value, more_places)
        if key:
            yield "Authorization" if name == b"authorization" else name.decode().upper(), key.decode("latin-1")
    parameters = {"api_key", *more_places.query_parameters}
    if not parameters.isdisjoint(query):
        for name, text in iterate_urlencoded(request.query_string, "query string"):
            if text and name in parameters:
                yield f"?{name}=", text


def _key_in_header(header: bytes, value: bytes, more_places: KeyPlaces) -> bytes | None:
    if header == b"x-api-key" or header in more_places.headers:
        return value.strip()
    if header != b"authorization":
        return None
    if value[:7].lower() == BEARER_PREFIX:
        return value[7:].strip()
    scheme, _, rest = value.strip().partition(b" ")
    found = more_places.key_extractors_by_scheme.get(scheme.lower())
    return found(rest.strip()) if found else None


def key_header_hint(request: Request) -> str | None:
    """Return a hint if a key seems to have been sent in a header or form that is not supported; else None."""
    value = request.joined_header(b"authorization").strip()
    if value:
        return "The header Authorization was sent without Bearer: write Authorization: Bearer, and the key after it."
    other = next((name for name in _UNSUPPORTED_KEY_HEADERS if name in request.headers), None)
    return f"The header {other.decode()} is not read: send the key in X-API-KEY." if other else None


def account_of_caller(request: Request, caller: Caller) -> str:
    """Return the account that is charged for the request: the key, or for a caller without a key the client's address.

    An IPv6 address is reduced to its /64 network, which usually belongs to one subscriber.
    """
    return account_of_key(request, caller.key_id)


def account_of_key(request: Request, key_id: str) -> str:
    """Return the account for a key id, or for the client's address if the id is empty or that of anonymous callers."""
    if key_id and key_id != ANONYMOUS_CALLER.key_id:
        return key_id
    peer = request.scope.get("client")
    return f"{ANONYMOUS_CALLER.key_id} {_subscriber_network(str(peer[0]))}" if peer else ANONYMOUS_CALLER.key_id


def _subscriber_network(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _IPV6_SUBSCRIBER_PREFIX_BITS << _IPV6_SUBSCRIBER_PREFIX_BITS)}/{_IPV6_SUBSCRIBER_PREFIX_BITS}"


def identify_caller(request: Request, services: Services) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller and the parsed query string. The id of the caller's key is recorded for the request log."""
    query = parse_urlencoded(request.query_string, "query string")
    caller = services.authenticator.authenticate(presented_key(request, query))
    request.log_fields["key"] = caller.key_id
    return caller, query


def require_private_caller(request: Request, services: Services) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller with a private key, and the query string; raise Forbidden for any other key.

    The request is counted against the key's rate.
    """
    caller, query = identify_caller(request, services)
    require_management_permission(caller)
    services.query_service.charge_request(caller)
    return caller, query


def require_unrestricted_caller(request: Request, services: Services, refusal: str) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller and the query string as `require_private_caller` does; refuse restricted keys as well.

    If the key has pins, or its answers are always redacted, raise Forbidden with the message `refusal`.
    """
    caller, query = require_private_caller(request, services)
    if not may_see_all_requests(caller):
        raise Forbidden(refusal)
    return caller, query


_AUDITED_REFUSALS = (MissingApiKey, BadApiKey, Forbidden, RequestRateExceeded)


def audit_refusal(observer: Observer, request: Request, fault: Fault) -> None:
    """If the request was refused because of its key, write the refusal to the audit log."""
    if isinstance(fault, _AUDITED_REFUSALS):
        observer.record(_audit_entry(request, "refused", f"{fault.code}: {fault.message}"))


def audit_key_change(
    observer: Observer, request: Request, action: str, key_id: str, terms: KeyTerms | None = None
) -> None:
    scopes = f" ({' '.join(sorted(terms.scopes))})" if terms else ""
    observer.record(_audit_entry(request, f"key.{action}", f"key {key_id}{scopes}"))


def audit_quarantine_replay(observer: Observer, request: Request, item_id: str, stream: str) -> None:
    observer.record(_audit_entry(request, "quarantine.replayed", f"item {item_id} to {stream}"))


def audit_definition_change(observer: Observer, request: Request, action: str, name: str) -> None:
    observer.record(_audit_entry(request, action, name))


def audit_backup(observer: Observer, request: Request) -> None:
    observer.record(msgspec.structs.replace(_audit_entry(request, "backup.made", "all events and keys"), level="info"))


def _audit_entry(request: Request, action: str, subject: str) -> ActionAudited:
    key = request.log_fields.get("key")
    return ActionAudited(action=action, key=key if isinstance(key, str) else "", subject=subject, request_id=request.id)
