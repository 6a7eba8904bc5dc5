"""Build definitions of endpoints and streams from JSON fields, check them, and store them in the data folder."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar
from uuid import UUID, uuid4, uuid5

import msgspec

from cordwood.catalog import endpoint_file, stream_file
from cordwood.catalog.catalog import Contents, Layer, Origin
from cordwood.catalog.endpoint_fields import EndpointDraft, changed_endpoint, new_endpoint
from cordwood.catalog.endpoint_fields import field_of as field_of_endpoint
from cordwood.catalog.field_values import Fields
from cordwood.catalog.files import with_managed
from cordwood.catalog.ids import is_uuid
from cordwood.catalog.managed_files import ManagedFiles, read_text, streams_toml
from cordwood.catalog.stream_fields import changed_stream, new_stream, stream_revision, table_of
from cordwood.catalog.stream_fields import field_of as field_of_stream
from cordwood.catalog.toml_writing import assignments
from cordwood.errors import (
    BadDefinition,
    BadEndpointFile,
    BadStreamFile,
    BrokenFiles,
    ChangedMeanwhile,
    Fault,
    InUse,
    Span,
    TooLarge,
    TooManyDefinitions,
)
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream
from cordwood.sql.included import may_name

MOST_ENDPOINTS: Final = 200
MOST_STREAMS: Final = 500
MOST_ENDPOINT_BYTES: Final = 128 * 1024
MOST_STREAM_BYTES: Final = 64 * 1024
MOST_STREAMS_BYTES: Final = 1024 * 1024

T = TypeVar("T", bound=Endpoint | Stream)
# Compiles an endpoint against the streams there are, or raises a fault with its place in the file.
Check = Callable[[Endpoint, Sequence[Stream]], object]


class PreparesStreams(Protocol):
    """The method of an engine that creates what a stream needs."""

    def prepare(self, streams: Sequence[Stream]) -> None: ...


class Definitions(Protocol[T]):
    """What `Managed` needs to change endpoints, or streams. `text` is a whole definition, as versions store it."""

    @property
    def kind(self) -> str:
        """The noun for error messages."""

    @property
    def namespace(self) -> UUID:
        """The namespace in which UUIDs are derived from names."""

    def all_of(self, contents: Contents) -> Sequence[T]:
        """Return all definitions that are served."""

    def managed_in(self, contents: Contents) -> Sequence[T]:
        """Return the definitions in the data folder."""

    def origins(self, contents: Contents) -> Mapping[str, Origin]:
        """Map each name to the origin of its definition."""

    def revision(self, one: T) -> str: ...

    def current_text(self, one: T) -> str | None:
        """Return the text in the data folder; None if there is none."""

    def drafted(self, contents: Contents, fields: Fields) -> str:
        """Return the text of a new definition."""

    def redrafted(self, before: T, fields: Fields) -> str | None:
        """Return the text with changed fields; None if nothing differs."""

    def read(self, text: str) -> T:
        """Parse a text; raise BadDefinition if it is invalid."""

    def checked(self, contents: Contents, old: T | None, new: T | None, text: str | None) -> Contents:
        """Return the contents with `new` instead of `old`, checked as at start."""

    def prepare(self, contents: Contents) -> None:
        """Create what the engine needs."""

    def store(self, old: T | None, new: T | None, text: str | None) -> None:
        """Replace the text in the data folder."""


class EndpointDefinitions:
    """Endpoints: one file each."""

    kind: Final = "endpoint"
    namespace: Final = endpoint_file.NAMESPACE

    def __init__(self, files: ManagedFiles, check: Check) -> None:
        self._files = files
        self._check = check

    def all_of(self, contents: Contents) -> Sequence[Endpoint]:
        return contents.endpoints

    def managed_in(self, contents: Contents) -> Sequence[Endpoint]:
        return contents.layers.managed.endpoints

    def origins(self, contents: Contents) -> Mapping[str, Origin]:
        return contents.layers.endpoint_origins()

    def revision(self, one: Endpoint) -> str:
        return one.revision

    def current_text(self, one: Endpoint) -> str | None:
        return read_text(Path(one.file))

    def drafted(self, contents: Contents, fields: Fields) -> str:
        taken = {one.id for one in (*contents.endpoints, *contents.layers.managed.endpoints)}
        return _with_id(new_endpoint(fields), _new_id(fields, self.namespace, taken)).text

    def redrafted(self, before: Endpoint, fields: Fields) -> str | None:
        if fields.get("token") not in (None, str(before.id)):
            raise BadDefinition("token", "cannot be changed", hint="Keys and dashboards name the endpoint by it.")
        text = self.current_text(before)
        if text is None:
            raise ChangedMeanwhile(f"The file of {before.name} has been removed.", hint="Reload the service.")
        current = self.read(text)
        was = EndpointDraft(endpoint_file.settings_of("", text), current.sql)
        changed = _with_id(changed_endpoint(was, fields), before.id).text
        return None if _meaning(self.read(changed)) == _meaning(current) else changed

    def read(self, text: str) -> Endpoint:
        if len(text.encode()) > MOST_ENDPOINT_BYTES:
            raise TooLarge(f"The endpoint's file would be larger than {MOST_ENDPOINT_BYTES // 1024} KiB.")
        try:
            found = endpoint_file.read_endpoint_file("", text)
        except BadEndpointFile as fault:
            raise _of_endpoint(fault, text) from fault
        return msgspec.structs.replace(found, file=str(self._files.endpoint_file(found.id)))

    def checked(self, contents: Contents, old: Endpoint | None, new: Endpoint | None, text: str | None) -> Contents:
        managed = [one for one in contents.layers.managed.endpoints if old is None or one.id != old.id]
        if new is not None:
            others = [*contents.endpoints, *managed, *contents.layers.shipped.endpoints]
            _require_free(new, [one for one in others if old is None or one.name != old.name], "endpoint")
            managed.append(_beside(new, old))
            if len(managed) > MOST_ENDPOINTS:
                raise TooManyDefinitions(
                    f"The data folder keeps at most {MOST_ENDPOINTS} endpoints.", hint="Delete some."
                )
        layer = msgspec.structs.replace(contents.layers.managed, endpoints=tuple(managed))
        try:
            found = with_managed(contents, layer)
        except BrokenFiles as broken:
            raise _of_endpoints(broken.faults[0], new, text, contents) from broken
        revisions = {one.name: one.revision for one in contents.endpoints}
        for one in (one for one in found.endpoints if one.revision != revisions.get(one.name)):
            try:
                self._check(one, found.streams)
            except BadEndpointFile as fault:
                raise _of_endpoints(fault, new, text, contents) from fault
        return found

    def prepare(self, contents: Contents) -> None:
        """Do nothing: endpoints need no storage."""

    def store(self, old: Endpoint | None, new: Endpoint | None, text: str | None) -> None:
        if new is not None and text is not None:
            self._files.write(Path(_beside(new, old).file), text)
        elif old is not None:
            self._files.remove(Path(old.file))


class StreamDefinitions:
    """Streams: one table each in one file. A changed shipped stream is a table that replaces it."""

    kind: Final = "stream"
    namespace: Final = stream_file.NAMESPACE

    def __init__(self, files: ManagedFiles, check: Check, engine: PreparesStreams) -> None:
        self._files = files
        self._check = check
        self._engine = engine

    def all_of(self, contents: Contents) -> Sequence[Stream]:
        return contents.streams

    def managed_in(self, contents: Contents) -> Sequence[Stream]:
        return contents.layers.managed.streams

    def origins(self, contents: Contents) -> Mapping[str, Origin]:
        return contents.layers.stream_origins()

    def revision(self, one: Stream) -> str:
        return stream_revision(one)

    def current_text(self, one: Stream) -> str | None:
        table = self._tables().get(one.name)
        return None if table is None else _table_text(table)

    def drafted(self, contents: Contents, fields: Fields) -> str:
        new_id = _new_id(fields, self.namespace, {one.id for one in contents.streams})
        return _table_text({"id": str(new_id), **new_stream(fields)})

    def redrafted(self, before: Stream, fields: Fields) -> str | None:
        for name, value in (("name", before.name), ("token", str(before.id))):
            if fields.get(name) not in (None, value):
                raise BadDefinition(
                    name, "cannot be changed", hint="Stored events are kept under it: make a new stream."
                )
        was = self._tables().get(before.name) or table_of(before)
        changed = _table_text(changed_stream(was, fields))
        return None if self.read(changed) == self.read(_table_text(was)) else changed

    def read(self, text: str) -> Stream:
        if len(text.encode()) > MOST_STREAM_BYTES:
            raise TooLarge(f"The stream's definition would be larger than {MOST_STREAM_BYTES // 1024} KiB.")
        try:
            return stream_file.read_stream_file(str(self._files.streams_file), text)[0]
        except BadStreamFile as fault:
            raise _of_stream(fault) from fault

    def checked(self, contents: Contents, old: Stream | None, new: Stream | None, text: str | None) -> Contents:
        if new is not None:
            _require_free(new, [one for one in contents.streams if old is None or one.name != old.name], "stream")
            self._require_shipped_project(contents, new)
            reader = contents.reader_of(new.name) if old is None else None
            if reader is not None:
                hint = f"It is the name of an endpoint that {reader.name} reads."
                raise BadDefinition("name", "has already been taken", hint=hint)
        file, written = str(self._files.streams_file), streams_toml(self._tables_with(old, new, text))
        if len(written.encode()) > MOST_STREAMS_BYTES:
            raise TooManyDefinitions(f"The streams of the data folder take more than {MOST_STREAMS_BYTES // 1024} KiB.")
        try:
            managed = stream_file.read_stream_file(file, written)
            if len(managed) > MOST_STREAMS and old is None:
                raise TooManyDefinitions(f"The data folder keeps at most {MOST_STREAMS} streams.", hint="Delete some.")
            found = with_managed(contents, Layer(contents.layers.managed.endpoints, managed))
        except BadStreamFile as fault:
            raise _of_stream(fault) from fault
        self._require_unread(contents, found)
        return found

    def prepare(self, contents: Contents) -> None:
        try:
            self._engine.prepare(contents.streams)
        except BadStreamFile as fault:
            raise BadDefinition("name", "has already been taken", message=fault.message) from fault

    def store(self, old: Stream | None, new: Stream | None, text: str | None) -> None:
        self._files.write_streams(self._tables_with(old, new, text))

    def _tables(self) -> dict[object, Mapping[str, object]]:
        return {table.get("name"): table for table in self._files.stream_tables()}

    def _tables_with(self, old: Stream | None, new: Stream | None, text: str | None) -> list[Mapping[str, object]]:
        tables = self._tables()
        if old is not None and new is None:
            tables.pop(old.name, None)
        if new is not None and text is not None:
            tables[new.name] = stream_file.tables_of("", text)[0]
        return list(tables.values())

    def _require_shipped_project(self, contents: Contents, new: Stream) -> None:
        """Refuse a change of `project` of a shipped stream: keys are pinned to the project at that path."""
        shipped = next((one for one in contents.layers.shipped.streams if one.name == new.name), None)
        if shipped is not None and new.project_at != shipped.project_at:
            raise BadDefinition("project", "cannot be changed", hint="The endpoints that ship look for it where it is.")

    def _require_unread(self, before: Contents, after: Contents) -> None:
        """Raise InUse if an endpoint reads a stream that is removed."""
        names = {one.name for one in after.streams}
        gone = [one.name for one in before.streams if one.name not in names]
        for endpoint in (one for one in after.endpoints if any(may_name(one, name) for name in gone)):
            try:
                self._check(endpoint, after.streams)
            except Fault as fault:
                told = f"The endpoint {endpoint.name} needs the stream: {fault.message}"
                raise InUse(told, hint="Change or delete the endpoint first.") from fault


def _new_id(fields: Fields, namespace: UUID, taken: Collection[UUID]) -> UUID:
    """Return the given UUID, or the one derived from the name, or a random one if that is taken."""
    token = fields.get("token")
    if token is None:
        made = uuid5(namespace, str(fields.get("name")))
        return uuid4() if made in taken else made
    if not isinstance(token, str) or not is_uuid(token):
        raise BadDefinition("token", "is invalid", hint="Leave it out, and one is made from the name.")
    return UUID(token)


def _with_id(draft: EndpointDraft, endpoint_id: UUID) -> EndpointDraft:
    name = {"name": draft.settings["name"]} if "name" in draft.settings else {}
    return EndpointDraft({**name, "id": str(endpoint_id), **_without_id(draft.settings)}, draft.query)


def _without_id(settings: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in settings.items() if name != "id"}


def _beside(new: Endpoint, old: Endpoint | None) -> Endpoint:
    """Keep the file of the old endpoint, which may have been named by hand."""
    return new if old is None else msgspec.structs.replace(new, file=old.file)


def _meaning(one: Endpoint) -> Endpoint:
    """Return an endpoint without properties that depend on the layout of its file, for comparison."""
    return msgspec.structs.replace(one, sql=one.sql.strip(), revision="", file="", body_line=1)


def _require_free(new: Endpoint | Stream, others: Sequence[Endpoint | Stream], kind: str) -> None:
    """Raise BadDefinition if the name, compared without case, or the UUID is taken."""
    for one in others:
        if one.name.casefold() == new.name.casefold():
            hint = f"There is the {kind} {one.name}: choose a name that differs in more than small and capital letters."
            raise BadDefinition("name", "has already been taken", hint=hint)
        if one.id == new.id:
            raise BadDefinition("token", "has already been taken", hint=f"It is that of the {kind} {one.name}.")


def _table_text(table: Mapping[str, object]) -> str:
    return "[[stream]]\n" + "".join(f"{line}\n" for line in assignments(table))


def _of_endpoint(fault: BadEndpointFile, text: str) -> BadDefinition:
    """Convert a fault of the file to one of the JSON field, with a place in the query."""
    if fault.path:
        return BadDefinition(field_of_endpoint(fault.path), fault.message, message=fault.message, hint=fault.hint)
    line = fault.span.line - text[: text.find("*/") + 3].count("\n") if fault.span else 0
    span = Span(line, fault.span.column) if fault.span and line > 0 else None
    return BadDefinition("query", fault.message, message=fault.message, hint=fault.hint, span=span)


def _of_endpoints(fault: Fault, new: Endpoint | None, text: str | None, contents: Contents) -> Fault:
    """Return the fault of the changed endpoint's field; InUse if the fault is in an endpoint that reads it."""
    file = fault.span.file if fault.span else None
    if isinstance(fault, BadEndpointFile) and new is not None and text is not None and file == new.file:
        return _of_endpoint(fault, text)
    reader = next((f"The endpoint {one.name}" for one in contents.endpoints if one.file == file), "Another endpoint")
    return InUse(
        f"{reader} reads this one, and cannot be served with the change: {fault.message}",
        hint="Change or delete that endpoint first.",
    )


def _of_stream(fault: BadStreamFile) -> BadDefinition:
    return BadDefinition(field_of_stream(fault.path), fault.message, message=fault.message, hint=fault.hint)
