"""Handle requests that read, create, change, delete or restore endpoints and streams, for unrestricted private keys."""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import msgspec

from cordwood.catalog.catalog import (
    ChangeContext,
    DefinitionEditor,
    DefinitionSource,
    DefinitionVersion,
    SentDefinition,
)
from cordwood.catalog.definition_fields import stream_revision
from cordwood.errors import BadBody, BadParameter, FeatureUnavailable, UnknownDefinitionVersion
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.json_checks import describe_json_error, find_duplicate_member_name
from cordwood.observe.observation import Observer
from cordwood.web.asgi import NO_STORE_HEADER, Header, Request, Response, no_store_json_response, parse_urlencoded
from cordwood.web.credentials import audit_definition_change, require_unrestricted_caller
from cordwood.web.describe import catalog
from cordwood.web.request_body import BodyBounds, read_body
from cordwood.web.services import Services, WebOptions

T = TypeVar("T", bound=Endpoint | Stream)
R = TypeVar("R")

DEFINITION_TEXT_PATH_TEMPLATE: Final = rb"/api/%b/([^/]+)/text"
VERSIONS_PATH_TEMPLATE: Final = rb"/api/%b/([^/]+)/versions"
VERSION_PATH_TEMPLATE: Final = rb"/api/%b/([^/]+/versions/[^/]+)"
RESTORE_PATH_TEMPLATE: Final = rb"/api/%b/([^/]+/versions/[^/]+)/restore"

# The maximum size of a body. An endpoint's file has at most 128 KiB, but JSON writes some of its characters as escapes
# of six bytes.
_DEFINITION_BODY_BOUNDS: Final = BodyBounds(2**20, 2**20)
_ETAG_PATTERN = re.compile(r'"([^"]*)"')
# A body with one of these media types is the text of a definition's file. Any other body is JSON.
_TEXT_MEDIA_TYPES: Final = ("text/plain", "application/sql", "application/toml")


class DefinitionKind(msgspec.Struct, Generic[T], frozen=True):
    """What differs between endpoints and streams. Logflare, whose API these routes follow, calls a stream a source."""

    name: str
    get_definition_editor: Callable[[Services], DefinitionEditor[T] | None]
    get_revision: Callable[[T], str]
    to_json: Callable[[T, str], Mapping[str, object]]


ENDPOINT_KIND: Final = DefinitionKind[Endpoint](
    "endpoint", lambda services: services.endpoint_definitions, lambda one: one.revision, catalog.endpoint_json
)
SOURCE_KIND: Final = DefinitionKind[Stream](
    "source", lambda services: services.stream_definitions, stream_revision, catalog.stream_json
)


class DefinitionRequest(msgspec.Struct, Generic[T], frozen=True):
    """Handles one request to create, read, change, delete or restore a definition (an endpoint or a stream)."""

    kind: DefinitionKind[T]
    request: Request
    services: Services
    options: WebOptions
    observer: Observer

    async def create(self) -> Response:
        author, is_dry = self._require_change_context(), self._is_dry_run()
        sent = await self._read_definition()
        created = await self._make_change(
            "created", lambda found: found.create(sent, author, is_dry=is_dry), is_dry=is_dry
        )
        return self._definition_response(created, 200 if is_dry else 201)

    async def change(self, address: str) -> Response:
        """Change the JSON fields in the body, or replace the whole text if the body is a text.

        As in Logflare, the response to PUT has the definition, and the response to PATCH has no body.
        """
        author, is_dry = self._require_change_context(), self._is_dry_run()
        sent = await self._read_definition()
        changed = await self._make_change(
            "changed", lambda found: found.change(address, sent, author, is_dry=is_dry), is_dry=is_dry
        )
        if self.request.method == "PATCH":
            return Response(204, [self._etag_header(changed.definition)])
        return self._definition_response(changed)

    async def show_text(self, address: str) -> Response:
        """Return the definition as the text of its file."""
        self._require_change_context()
        found = await asyncio.to_thread(self._require_definition_editor().find, address)
        headers: list[Header] = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"x-content-type-options", b"nosniff"),
            NO_STORE_HEADER,
            self._etag_header(found.definition),
        ]
        return Response(200, headers, found.text.encode())

    async def delete(self, address: str) -> Response:
        author = self._require_change_context()
        self._refuse_dry_run()
        async with self.services.definition_lock:
            await asyncio.to_thread(self._require_definition_editor().delete, address, author)
        audit_definition_change(self.observer, self.request, f"{self.kind.name}.deleted", address)
        return Response(204, [])

    async def list_versions(self, address: str) -> Response:
        self._require_change_context()
        versions = await asyncio.to_thread(self._require_definition_editor().versions, address)
        return no_store_json_response([_version_json(one, versions[-1].number) for one in reversed(versions)])

    async def show_version(self, address_and_number: str) -> Response:
        self._require_change_context()
        address, number = _split_version_address(address_and_number)
        version, found = await asyncio.to_thread(self._require_definition_editor().version, address, number)
        to_json = {} if found is None else self.kind.to_json(found, "managed")
        return no_store_json_response({**to_json, **_version_json(version), "text": version.text})

    async def restore_version(self, address_and_number: str) -> Response:
        author = self._require_change_context()
        self._refuse_dry_run()
        address, number = _split_version_address(address_and_number)
        return self._definition_response(
            await self._make_change("restored", lambda found: found.restore(address, number, author))
        )

    async def _make_change(
        self, action: str, change: Callable[[DefinitionEditor[T]], DefinitionSource[T]], *, is_dry: bool = False
    ) -> DefinitionSource[T]:
        """Make a change in a thread, once earlier changes have ended. So all changes occupy at most one thread."""
        definitions = self._require_definition_editor()
        async with self.services.definition_lock:
            changed = await asyncio.to_thread(change, definitions)
        if not is_dry:
            audit_definition_change(self.observer, self.request, f"{self.kind.name}.{action}", changed.definition.name)
        return changed

    def _require_definition_editor(self) -> DefinitionEditor[T]:
        found = self.kind.get_definition_editor(self.services)
        if found is None:
            raise FeatureUnavailable("Nothing is managed over HTTP here.")
        return found

    def _require_change_context(self) -> ChangeContext:
        """Return the author of the change; raise Forbidden unless the key is private and unrestricted.

        If a restricted key were allowed, it could create an endpoint that reads more than the key may read.
        """
        refusal = "This key does not see everything, and an endpoint may read everything."
        caller, _ = require_unrestricted_caller(self.request, self.services, refusal)
        return ChangeContext(caller.key_id, _expected_revisions(self.request))

    def _is_dry_run(self) -> bool:
        """Return whether the request is a dry run: all checks are made, but nothing is changed."""
        value = parse_urlencoded(self.request.query_string, "query string").get("dry_run", "false")
        if value not in ("true", "false"):
            raise BadParameter(f"dry_run is {value[:40]!r}.", hint="It must be true or false.")
        return value == "true"

    def _refuse_dry_run(self) -> None:
        if self._is_dry_run():
            raise BadParameter(
                "There is no dry run of this request.", hint="POST, PUT and PATCH of a definition have one."
            )

    async def _read_definition(self) -> SentDefinition:
        is_text = self.request.media_type() in _TEXT_MEDIA_TYPES and self.request.method != "PATCH"
        key_id = str(self.request.log_fields.get("key", ""))
        with self.options.query_body_budget.open_reservation(key_id) as reservation:
            body = await read_body(self.request, _DEFINITION_BODY_BOUNDS, reservation)
            return _read_text(body) if is_text else _read_fields(body)

    def _definition_response(self, found: DefinitionSource[T], status: int = 200) -> Response:
        to_json = self.kind.to_json(found.definition, found.origin)
        return no_store_json_response(to_json, status, self._etag_header(found.definition))

    def _etag_header(self, definition: T) -> Header:
        return b"etag", f'"{self.kind.get_revision(definition)}"'.encode()


def _read_fields(body: bytes) -> Mapping[str, object]:
    try:
        fields = msgspec.json.decode(body, type=dict[str, object])
        twice = find_duplicate_member_name(body)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise BadBody(
            f"The body cannot be read: {describe_json_error(problem, body)}.", hint="Send a JSON object."
        ) from problem
    if twice is not None:
        raise BadBody(f"The body has the name {twice[:40]!r} twice in one object.")
    return fields


def _read_text(body: bytes) -> str:
    """Return the body as text, with all line ends converted to line feeds."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise BadBody(f"The body cannot be read: {describe_json_error(problem, body)}.") from problem
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadBody(f"The body has a NUL character on line {line}.", hint="Send the text of a file.")
    return text


def _expected_revisions(request: Request) -> frozenset[str] | None:
    """Return the revisions in the header If-Match, or None if the client accepts any revision."""
    given = request.joined_header(b"if-match").strip()
    return None if given in ("", "*") else frozenset(_ETAG_PATTERN.findall(given))


def _split_version_address(address_and_number: str) -> tuple[str, int]:
    address, _, number = address_and_number.rsplit("/", 2)
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise UnknownDefinitionVersion(
            f"{number[:20]!r} is not the number of a version.", hint="GET …/versions lists them."
        )
    return address, int(number)


def _version_json(version: DefinitionVersion, current: int | None = None) -> Mapping[str, object]:
    at = datetime.fromtimestamp(version.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    is_current = {} if current is None else {"current": version.number == current}
    return {
        "version": version.number,
        "inserted_at": at,
        "key": version.author_key_id or None,
        "deleted": version.text is None,
        **is_current,
    }
