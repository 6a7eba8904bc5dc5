"""Build definitions of endpoints and streams from JSON fields or a text, check them, and store them as files."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar
from uuid import UUID, uuid4, uuid5

import msgspec

from cordwood.catalog import endpoint_file, stream_file
from cordwood.catalog.catalog import CatalogContents, CatalogLayer, DefinitionOrigin, JsonFields, SentDefinition
from cordwood.catalog.definition_fields import (
    EndpointFileContent,
    apply_endpoint_fields,
    apply_stream_fields,
    endpoint_content_from_fields,
    endpoint_field_of_toml_path,
    endpoint_setting_of_field,
    put_keys_first,
    read_endpoint_settings,
    read_stream_toml_table,
    stream_field_of_toml_path,
    stream_revision,
    stream_setting_of_field,
    stream_to_toml_table,
    stream_toml_table_from_fields,
    unchangeable_setting_fault,
    without_inherited_parameters,
)
from cordwood.catalog.file_catalog import (
    CheckAlert,
    ManagedDefinitionFiles,
    find_alert_faults,
    read_text_if_exists,
    replace_managed_layer,
    streams_file_text,
)
from cordwood.catalog.toml_document import TomlDocument, format_toml_assignments, is_uuid
from cordwood.catalog.toml_document import TomlPath as SettingPath
from cordwood.errors import (
    BadDefinition,
    BadEndpointFile,
    BadStreamFile,
    BodyTooLarge,
    BrokenDefinitionFiles,
    Fault,
    RevisionMismatch,
    SetupFault,
    Span,
    StreamInUse,
    TooManyDefinitions,
)
from cordwood.model.definitions import Alert, Endpoint, Stream
from cordwood.sql.included_endpoints import may_read_any_table

MAX_ENDPOINTS: Final = 200
MAX_STREAMS: Final = 500
MAX_ENDPOINT_FILE_BYTES: Final = 128 * 1024
MAX_STREAM_DEFINITION_BYTES: Final = 64 * 1024
MAX_STREAMS_FILE_BYTES: Final = 1024 * 1024
_UNCHANGEABLE_ID_HINT: Final = "Keys and dashboards name the endpoint by it."
_UNCHANGEABLE_STREAM_NAME_HINT: Final = "Stored events are kept under it: make a new stream."

T = TypeVar("T", bound=Endpoint | Stream)
# A function that compiles an endpoint, given the streams that exist. If the endpoint has an error, the function raises
# it with its position in the endpoint's file.
CheckEndpoint = Callable[[Endpoint, Sequence[Stream]], object]


class DefinitionChecks(msgspec.Struct, frozen=True):
    """The checks of endpoints and alerts that a change over HTTP must pass.

    Definition files must pass the same checks when the service starts.
    """

    check_endpoint: CheckEndpoint
    check_alert: CheckAlert


class StreamTableCreator(Protocol):
    """The interface of an engine that creates the tables of streams, or only checks whether it could create them."""

    def create_stream_tables(self, streams: Sequence[Stream]) -> None: ...

    def check_streams(self, streams: Sequence[Stream]) -> None: ...


class DefinitionDraft(msgspec.Struct, frozen=True):
    """A definition that is not stored yet: the text that will be stored, and the text that its author sent.

    `sent_text` is None if the author sent JSON fields instead of a text, or restores an earlier version.
    """

    text_to_store: str
    sent_text: str | None = None

    def span_in_sent_text(self, span: Span | None) -> Span | None:
        """Convert a position in the text that will be stored to a position in the text that the author sent.

        If the author sent JSON fields, return the position within the query, or None if the position is outside the
        query.
        """
        if span is None:
            return None
        if self.sent_text is not None:
            return Span(span.line - self.text_to_store.count("\n") + self.sent_text.count("\n"), span.column)
        line = span.line - self.text_to_store[: self.text_to_store.find("*/") + 3].count("\n")
        return Span(line, span.column) if line > 0 else None


class DefinitionOperations(Protocol[T]):
    """What `ManagedDefinitions` needs to change definitions of one kind: either endpoints or streams."""

    @property
    def definition_kind(self) -> str:
        """The noun for error messages: `endpoint` or `stream`."""

    @property
    def id_namespace(self) -> UUID:
        """The namespace in which UUIDs are derived from names."""

    def all_definitions(self, contents: CatalogContents) -> Sequence[T]:
        """Return all definitions that are in use."""

    def managed_definitions(self, contents: CatalogContents) -> Sequence[T]:
        """Return only the definitions in the data folder, which were created or changed over HTTP."""

    def origins_by_name(self, contents: CatalogContents) -> Mapping[str, DefinitionOrigin]:
        """Return the origin of each definition by its name: shipped with cordwood, a file of the operator, or HTTP."""

    def revision_of(self, definition: T) -> str: ...

    def stored_text(self, definition: T) -> str | None:
        """Return the definition's text as the data folder stores it, or None if it does not store this definition."""

    def definition_text(self, definition: T, origin: DefinitionOrigin) -> str:
        """Return the text of a definition, whether it is shipped, in a file of the operator, or sent over HTTP."""

    def new_draft(self, contents: CatalogContents, sent: SentDefinition) -> DefinitionDraft:
        """Return the draft of a new definition from what its author sent."""

    def changed_draft(self, before: T, sent: SentDefinition) -> DefinitionDraft | None:
        """Return the draft of a change of the definition `before`, or None if `sent` would change nothing."""

    def parse_draft(self, draft: DefinitionDraft) -> T:
        """Parse a draft; raise BadDefinition if it is invalid."""

    def contents_after_change(
        self, contents: CatalogContents, old: T | None, new: T | None, draft: DefinitionDraft | None
    ) -> CatalogContents:
        """Return the definitions with `new` in place of `old`, after the checks that the service's start makes."""

    def span_of_field(self, field: str, sent: str) -> Span | None:
        """Return where the text `sent` has the setting for a JSON field, or None if this setting is missing."""

    def create_or_check_engine_tables(self, contents: CatalogContents, *, only_check: bool = False) -> None:
        """Create the engine's tables for the definitions; with `only_check`, only check whether that is possible."""

    def store_definition(self, old: T | None, new: T | None, text: str | None) -> None:
        """Write `text`, the text of `new`, to the data folder. If `new` is None, remove the text of `old`."""


class EndpointOperations:
    """Operations on endpoints. Each endpoint is stored in its own file."""

    definition_kind: Final = "endpoint"
    id_namespace: Final = endpoint_file.ENDPOINT_ID_NAMESPACE

    def __init__(self, files: ManagedDefinitionFiles, checks: DefinitionChecks) -> None:
        self._managed_files = files
        self._definition_checks = checks

    def all_definitions(self, contents: CatalogContents) -> Sequence[Endpoint]:
        return contents.endpoints

    def managed_definitions(self, contents: CatalogContents) -> Sequence[Endpoint]:
        return contents.layers.managed.endpoints

    def origins_by_name(self, contents: CatalogContents) -> Mapping[str, DefinitionOrigin]:
        return contents.layers.endpoint_origins()

    def revision_of(self, definition: Endpoint) -> str:
        return definition.revision

    def stored_text(self, definition: Endpoint) -> str | None:
        return read_text_if_exists(Path(definition.file))

    def definition_text(self, definition: Endpoint, origin: DefinitionOrigin) -> str:
        """Return the text of the endpoint's file, whatever its origin."""
        return endpoint_file.endpoint_text(definition)

    def new_draft(self, contents: CatalogContents, sent: SentDefinition) -> DefinitionDraft:
        used_ids = {endpoint.id for endpoint in (*contents.endpoints, *contents.layers.managed.endpoints)}
        if isinstance(sent, str):
            settings, endpoint = self._parse_sent_text(sent)
            is_free = "id" in settings.root_table or endpoint.id not in used_ids
            return DefinitionDraft(sent if is_free else endpoint_file.add_endpoint_id(sent, uuid4()), sent)
        return DefinitionDraft(
            _content_with_id(
                endpoint_content_from_fields(sent), _read_or_derive_id(sent, self.id_namespace, used_ids)
            ).file_text
        )

    def changed_draft(self, before: Endpoint, sent: SentDefinition) -> DefinitionDraft | None:
        text = self.stored_text(before)
        if text is None:
            raise RevisionMismatch(f"The file of {before.name} has been removed.", hint="Reload the service.")
        if isinstance(sent, str):
            draft = self._draft_of_changed_text(before, sent)
            return None if draft.text_to_store == text else draft
        if sent.get("token") not in (None, str(before.id)):
            raise BadDefinition("token", "cannot be changed", hint=_UNCHANGEABLE_ID_HINT)
        current = self.parse_draft(DefinitionDraft(text))
        content = EndpointFileContent(endpoint_file.parse_settings_document("", text).root_table, current.sql)
        draft = DefinitionDraft(_content_with_id(apply_endpoint_fields(content, sent), before.id).file_text)
        own_names = {parameter.name for parameter in current.parameters}
        inherited = [parameter for parameter in before.parameters if parameter.name not in own_names]
        if inherited and sent.get("parameters"):
            changed = self.parse_draft(draft)
            new_query = "" if changed.sql.strip() == current.sql.strip() else changed.sql
            sent = without_inherited_parameters(sent, changed, inherited, new_query)
            draft = DefinitionDraft(_content_with_id(apply_endpoint_fields(content, sent), before.id).file_text)
        return (
            None
            if _endpoint_without_file_layout(self.parse_draft(draft)) == _endpoint_without_file_layout(current)
            else draft
        )

    def _draft_of_changed_text(self, before: Endpoint, sent: str) -> DefinitionDraft:
        """Return the draft of a text sent to change `before`. If the text has no id, add the id of `before`."""
        settings, endpoint = self._parse_sent_text(sent)
        if endpoint.id == before.id:
            return DefinitionDraft(sent, sent)
        if "id" in settings.root_table:
            fault = unchangeable_setting_fault(settings, ("id",), _UNCHANGEABLE_ID_HINT)
            raise _convert_endpoint_fault(fault, DefinitionDraft(sent, sent)) from fault
        return DefinitionDraft(endpoint_file.add_endpoint_id(sent, before.id), sent)

    def _parse_sent_text(self, sent: str) -> tuple[TomlDocument, Endpoint]:
        """Parse the text that the author sent; raise BadDefinition with the position of an error in this text."""
        draft = DefinitionDraft(sent, sent)
        _require_max_size(draft, MAX_ENDPOINT_FILE_BYTES, "The endpoint's file")
        try:
            return read_endpoint_settings(sent), self.parse_draft(draft)
        except BadEndpointFile as fault:
            raise _convert_endpoint_fault(fault, draft) from fault

    def span_of_field(self, field: str, sent: str) -> Span | None:
        document = endpoint_file.parse_settings_document("", sent)
        return _span_of_setting(document, (endpoint_setting_of_field(field),), document.root_table)

    def parse_draft(self, draft: DefinitionDraft) -> Endpoint:
        _require_max_size(draft, MAX_ENDPOINT_FILE_BYTES, "The endpoint's file")
        try:
            endpoint = endpoint_file.read_endpoint_file("", draft.text_to_store)
        except BadEndpointFile as fault:
            raise _convert_endpoint_fault(fault, draft) from fault
        return _endpoint_with_file(endpoint, str(self._managed_files.endpoint_file(endpoint.id)))

    def contents_after_change(
        self, contents: CatalogContents, old: Endpoint | None, new: Endpoint | None, draft: DefinitionDraft | None
    ) -> CatalogContents:
        managed = [endpoint for endpoint in contents.layers.managed.endpoints if old is None or endpoint.id != old.id]
        if new is not None:
            new = _endpoint_with_file_of(new, old)
            self._require_unused_names(contents, managed, old, new)
            managed.append(new)
            if len(managed) > MAX_ENDPOINTS:
                raise TooManyDefinitions(
                    f"The data folder keeps at most {MAX_ENDPOINTS} endpoints.", hint="Delete some."
                )
        layer = msgspec.structs.replace(contents.layers.managed, endpoints=tuple(managed))
        try:
            checked = replace_managed_layer(contents, layer)
        except BrokenDefinitionFiles as broken:
            raise _convert_fault_after_change(broken.faults[0], new, draft, contents) from broken
        revisions = {endpoint.name: endpoint.revision for endpoint in contents.endpoints}
        for endpoint in (
            endpoint for endpoint in checked.endpoints if endpoint.revision != revisions.get(endpoint.name)
        ):
            try:
                self._definition_checks.check_endpoint(endpoint, checked.streams)
            except BadEndpointFile as fault:
                raise _convert_fault_after_change(fault, new, draft, contents) from fault
        self._check_alerts(checked, old, new, draft)
        return checked

    def _require_unused_names(
        self, contents: CatalogContents, managed: Sequence[Endpoint], old: Endpoint | None, new: Endpoint
    ) -> None:
        """Raise BadDefinition if the name or UUID of `new`, or the name of its alert, is already used."""
        others = [*contents.endpoints, *managed, *contents.layers.shipped.endpoints]
        _require_unused_name_and_id(
            new, [endpoint for endpoint in others if old is None or endpoint.name != old.name], "endpoint"
        )
        _require_unused_alert_name(new, [alert for alert in contents.alerts if old is None or alert != old.alert])

    def _check_alerts(
        self, checked: CatalogContents, old: Endpoint | None, new: Endpoint | None, draft: DefinitionDraft | None
    ) -> None:
        """Check all alerts on the changed endpoint, both in its own settings and in alert files of the operator."""
        names = {endpoint.name for endpoint in (old, new) if endpoint is not None}
        alerts = [alert for alert in checked.alerts if alert.endpoint_name in names]
        for fault in find_alert_faults(
            msgspec.structs.replace(checked, alerts=tuple(alerts)), self._definition_checks.check_alert
        ):
            if new is not None and fault.span is not None and fault.span.file == new.file:
                span = None if draft is None else draft.span_in_sent_text(fault.span)
                raise BadDefinition("alert", fault.message, message=fault.message, hint=fault.hint, span=span)
            raise StreamInUse(f"{fault.message} It watches this endpoint.", hint="Change or remove that alert first.")

    def create_or_check_engine_tables(self, contents: CatalogContents, *, only_check: bool = False) -> None:
        """Do nothing, because only streams need tables in the engine."""

    def store_definition(self, old: Endpoint | None, new: Endpoint | None, text: str | None) -> None:
        if new is not None and text is not None:
            self._managed_files.write_file(Path(_endpoint_with_file_of(new, old).file), text)
        elif old is not None:
            self._managed_files.remove_file(Path(old.file))


class StreamOperations:
    """Operations on streams. All streams of the data folder are stored in one TOML file, each as a table.

    If a table has the name of a shipped stream, its settings replace those of the shipped stream.
    """

    definition_kind: Final = "stream"
    id_namespace: Final = stream_file.STREAM_ID_NAMESPACE

    def __init__(self, files: ManagedDefinitionFiles, check: CheckEndpoint, engine: StreamTableCreator) -> None:
        self._managed_files = files
        self._check_endpoint = check
        self._table_creator = engine

    def all_definitions(self, contents: CatalogContents) -> Sequence[Stream]:
        return contents.streams

    def managed_definitions(self, contents: CatalogContents) -> Sequence[Stream]:
        return contents.layers.managed.streams

    def origins_by_name(self, contents: CatalogContents) -> Mapping[str, DefinitionOrigin]:
        return contents.layers.stream_origins()

    def revision_of(self, definition: Stream) -> str:
        return stream_revision(definition)

    def stored_text(self, definition: Stream) -> str | None:
        table = self._stream_toml_tables_by_name().get(definition.name)
        return None if table is None else _stream_table_toml(table)

    def definition_text(self, definition: Stream, origin: DefinitionOrigin) -> str:
        """Return the stream as a TOML table: as the data folder stores it, or else made from the stream's settings."""
        text = self.stored_text(definition) if origin is DefinitionOrigin.MANAGED else None
        return text or _stream_table_toml(stream_to_toml_table(definition))

    def new_draft(self, contents: CatalogContents, sent: SentDefinition) -> DefinitionDraft:
        used_ids = {stream.id for stream in contents.streams}
        if isinstance(sent, str):
            _, table, stream = self._parse_sent_text(sent)
            _require_permitted_new_name(stream.name)
            is_free = "id" in table or stream.id not in used_ids
            return DefinitionDraft(
                _stream_table_toml(table if is_free else _stream_toml_table_with_id(table, uuid4())), sent
            )
        _require_permitted_new_name(str(sent.get("name")))
        return DefinitionDraft(
            _stream_table_toml(
                {
                    "id": str(_read_or_derive_id(sent, self.id_namespace, used_ids)),
                    **stream_toml_table_from_fields(sent),
                }
            )
        )

    def changed_draft(self, before: Stream, sent: SentDefinition) -> DefinitionDraft | None:
        old_table = self._stream_toml_tables_by_name().get(before.name) or stream_to_toml_table(before)
        if isinstance(sent, str):
            draft = self._draft_of_changed_text(before, sent)
            return None if draft.text_to_store == _stream_table_toml(old_table) else draft
        for name, value in (("name", before.name), ("token", str(before.id))):
            if sent.get(name) not in (None, value):
                raise BadDefinition(name, "cannot be changed", hint=_UNCHANGEABLE_STREAM_NAME_HINT)
        draft = DefinitionDraft(_stream_table_toml(apply_stream_fields(old_table, sent)))
        return (
            None
            if self.parse_draft(draft) == self.parse_draft(DefinitionDraft(_stream_table_toml(old_table)))
            else draft
        )

    def _draft_of_changed_text(self, before: Stream, sent: str) -> DefinitionDraft:
        """Return the draft of a text sent to change `before`. If the text has no id, add the id of `before`."""
        document, table, stream = self._parse_sent_text(sent)
        for name in ("name", "id"):
            if name in table and getattr(stream, name) != getattr(before, name):
                fault = unchangeable_setting_fault(document, ("stream", 0, name), _UNCHANGEABLE_STREAM_NAME_HINT)
                raise _convert_stream_fault(fault, is_sent=True) from fault
        return DefinitionDraft(
            _stream_table_toml(table if stream.id == before.id else _stream_toml_table_with_id(table, before.id)), sent
        )

    def _parse_sent_text(self, sent: str) -> tuple[TomlDocument, Mapping[str, object], Stream]:
        """Parse the text that the author sent; raise BadDefinition with the position of an error in this text."""
        _require_max_size(DefinitionDraft(sent), MAX_STREAM_DEFINITION_BYTES, "The stream's definition")
        try:
            document, table = read_stream_toml_table(sent)
            return document, table, stream_file.read_stream_file(str(self._managed_files.streams_file), sent)[0]
        except BadStreamFile as fault:
            raise _convert_stream_fault(fault, is_sent=True) from fault

    def span_of_field(self, field: str, sent: str) -> Span | None:
        document, table = read_stream_toml_table(sent)
        return _span_of_setting(document, ("stream", 0, stream_setting_of_field(field)), table)

    def parse_draft(self, draft: DefinitionDraft) -> Stream:
        _require_max_size(draft, MAX_STREAM_DEFINITION_BYTES, "The stream's definition")
        try:
            return stream_file.read_stream_file(str(self._managed_files.streams_file), draft.text_to_store)[0]
        except BadStreamFile as fault:
            raise _convert_stream_fault(fault) from fault

    def contents_after_change(
        self, contents: CatalogContents, old: Stream | None, new: Stream | None, draft: DefinitionDraft | None
    ) -> CatalogContents:
        if new is not None:
            _require_unused_name_and_id(
                new, [stream for stream in contents.streams if old is None or stream.name != old.name], "stream"
            )
            self._require_unchanged_project(contents, new)
            reader = contents.find_endpoint_that_includes(new.name) if old is None else None
            if reader is not None:
                hint = f"It is the name of an endpoint that {reader.name} reads."
                raise BadDefinition("name", "has already been taken", hint=hint)
        path, new_text = (
            str(self._managed_files.streams_file),
            streams_file_text(
                self._stream_toml_tables_after_change(old, new, None if draft is None else draft.text_to_store)
            ),
        )
        if len(new_text.encode()) > MAX_STREAMS_FILE_BYTES:
            raise TooManyDefinitions(
                f"The streams of the data folder take more than {MAX_STREAMS_FILE_BYTES // 1024} KiB."
            )
        try:
            managed = stream_file.read_stream_file(path, new_text)
            if len(managed) > MAX_STREAMS and old is None:
                raise TooManyDefinitions(f"The data folder keeps at most {MAX_STREAMS} streams.", hint="Delete some.")
            checked = replace_managed_layer(contents, CatalogLayer(contents.layers.managed.endpoints, managed))
        except BadStreamFile as fault:
            raise _convert_stream_fault(fault) from fault
        self._require_removed_streams_unused(contents, checked)
        return checked

    def create_or_check_engine_tables(self, contents: CatalogContents, *, only_check: bool = False) -> None:
        try:
            (self._table_creator.check_streams if only_check else self._table_creator.create_stream_tables)(
                contents.streams
            )
        except BadStreamFile as fault:
            raise BadDefinition("name", "has already been taken", message=fault.message) from fault

    def store_definition(self, old: Stream | None, new: Stream | None, text: str | None) -> None:
        self._managed_files.write_streams(self._stream_toml_tables_after_change(old, new, text))

    def _stream_toml_tables_by_name(self) -> dict[object, Mapping[str, object]]:
        return {table.get("name"): table for table in self._managed_files.stream_toml_tables()}

    def _stream_toml_tables_after_change(
        self, old: Stream | None, new: Stream | None, text: str | None
    ) -> list[Mapping[str, object]]:
        tables = self._stream_toml_tables_by_name()
        if old is not None and new is None:
            tables.pop(old.name, None)
        if new is not None and text is not None:
            tables[new.name] = stream_file.parse_stream_toml_tables("", text)[0]
        return list(tables.values())

    def _require_unchanged_project(self, contents: CatalogContents, new: Stream) -> None:
        """Refuse to change the setting `project` of a shipped stream.

        The shipped endpoints read the project at the path in this setting, and pins of keys rely on it.
        """
        shipped = next((stream for stream in contents.layers.shipped.streams if stream.name == new.name), None)
        if shipped is not None and new.project_at != shipped.project_at:
            raise BadDefinition("project", "cannot be changed", hint="The endpoints that ship look for it where it is.")

    def _require_removed_streams_unused(self, before: CatalogContents, new_contents: CatalogContents) -> None:
        """Raise StreamInUse if an endpoint reads a stream that is in `before` but not in `new_contents`."""
        names = {definition.name for definition in new_contents.streams}
        removed = [definition.name for definition in before.streams if definition.name not in names]
        for endpoint in (
            definition for definition in new_contents.endpoints if may_read_any_table(definition, *removed)
        ):
            try:
                self._check_endpoint(endpoint, new_contents.streams)
            except Fault as fault:
                message = f"The endpoint {endpoint.name} needs the stream: {fault.message}"
                raise StreamInUse(message, hint="Change or delete the endpoint first.") from fault


def _read_or_derive_id(fields: JsonFields, namespace: UUID, used_ids: Collection[UUID]) -> UUID:
    """Return the UUID in the JSON fields, or else one that is derived from the name.

    If the derived UUID is already used, return a random one.
    """
    token = fields.get("token")
    if token is None:
        derived = uuid5(namespace, str(fields.get("name")))
        return uuid4() if derived in used_ids else derived
    if not isinstance(token, str) or not is_uuid(token):
        raise BadDefinition("token", "is invalid", hint="Leave it out, and one is made from the name.")
    return UUID(token)


def _require_permitted_new_name(name: str) -> None:
    """Raise BadDefinition if a stream of this name cannot be created, although a stream that exists may have it.

    Names that no stream can have are refused later, with the position in the text that was sent.
    """
    problem = stream_file.new_stream_name_problem(name)
    if problem is not None and stream_file.stream_name_problem(name) is None:
        raise BadDefinition("name", "is reserved", hint=f"{problem}.")


def _content_with_id(content: EndpointFileContent, endpoint_id: UUID) -> EndpointFileContent:
    name = {"name": content.settings["name"]} if "name" in content.settings else {}
    return EndpointFileContent(
        {**name, "id": str(endpoint_id), **_settings_without_id(content.settings)}, content.query
    )


def _settings_without_id(settings: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in settings.items() if name != "id"}


def _endpoint_with_file_of(new: Endpoint, old: Endpoint | None) -> Endpoint:
    """Return `new` with the path of the file of `old`; if `old` is None, return `new` unchanged.

    The path is copied, because the name of the file need not be the endpoint's UUID.
    """
    return new if old is None else _endpoint_with_file(new, old.file)


def _endpoint_with_file(endpoint: Endpoint, file: str) -> Endpoint:
    alert = None if endpoint.alert is None else msgspec.structs.replace(endpoint.alert, file=file)
    return msgspec.structs.replace(endpoint, file=file, alert=alert)


def _endpoint_without_file_layout(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint without the properties that depend on the layout of its file.

    If the results for two endpoints are equal, the endpoints differ at most in the layout of their files.
    """
    alert = None if endpoint.alert is None else msgspec.structs.replace(endpoint.alert, file="", line=1, revision="")
    return msgspec.structs.replace(
        endpoint, sql=endpoint.sql.strip(), revision="", file="", text_before_query="", query_first_line=1, alert=alert
    )


def _require_unused_name_and_id(new: Endpoint | Stream, others: Sequence[Endpoint | Stream], kind: str) -> None:
    """Raise BadDefinition if the name or the UUID of `new` is already used. Names are compared without case."""
    for other in others:
        if other.name.casefold() == new.name.casefold():
            hint = (
                f"There is the {kind} {other.name}: choose a name that differs in more than small and capital letters."
            )
            raise BadDefinition("name", "has already been taken", hint=hint)
        if other.id == new.id:
            raise BadDefinition("token", "has already been taken", hint=f"It is that of the {kind} {other.name}.")


def _require_unused_alert_name(new: Endpoint, others: Sequence[Alert]) -> None:
    """Raise BadDefinition if another alert has the name of the alert of `new`. Names are compared without case."""
    for other in others if new.alert is not None else ():
        if new.alert is not None and other.name.casefold() == new.alert.name.casefold():
            hint = f"There is the alert {other.name} of {other.endpoint_name}: give this one another name."
            raise BadDefinition("alert", "has a name that has already been taken", hint=hint)


def _stream_table_toml(table: Mapping[str, object]) -> str:
    return "[[stream]]\n" + "".join(f"{line}\n" for line in format_toml_assignments(table))


def _stream_toml_table_with_id(table: Mapping[str, object], stream_id: UUID) -> Mapping[str, object]:
    return put_keys_first({**table, "id": str(stream_id)}, ("name", "id"))


def _require_max_size(draft: DefinitionDraft, max_bytes: int, subject: str) -> None:
    if len(draft.text_to_store.encode()) > max_bytes:
        raise BodyTooLarge(f"{subject} would be larger than {max_bytes // 1024} KiB.")


def _span_of_setting(document: TomlDocument, path: SettingPath, table: Mapping[str, object]) -> Span | None:
    return Span(document.line_of(path), 1) if path[-1] in table else None


def _convert_endpoint_fault(fault: SetupFault, draft: DefinitionDraft) -> BadDefinition:
    """Convert an error in an endpoint's file to an error in a JSON field, with its position in the sent text."""
    # An error in a setting has a position only if the author sent the settings as text, not as JSON fields.
    span = None if fault.setting_path and draft.sent_text is None else draft.span_in_sent_text(fault.span)
    field = endpoint_field_of_toml_path(fault.setting_path)
    return BadDefinition(field, fault.message, message=fault.message, hint=fault.hint, span=span)


def _convert_fault_after_change(
    fault: Fault, new: Endpoint | None, draft: DefinitionDraft | None, contents: CatalogContents
) -> Fault:
    """Convert an error that a change of an endpoint caused.

    An error in the changed endpoint becomes an error in a JSON field. An error in another endpoint, which reads the
    changed one, becomes StreamInUse.
    """
    file = fault.span.file if fault.span else None
    if isinstance(fault, BadEndpointFile) and new is not None and draft is not None and file == new.file:
        return _convert_endpoint_fault(fault, draft)
    reader = next(
        (f"The endpoint {endpoint.name}" for endpoint in contents.endpoints if endpoint.file == file),
        "Another endpoint",
    )
    return StreamInUse(
        f"{reader} reads this endpoint, and cannot be served with the change: {fault.message}",
        hint="Change or delete that endpoint first.",
    )


def _convert_stream_fault(fault: SetupFault, *, is_sent: bool = False) -> BadDefinition:
    """Convert an error in the streams file to an error in a JSON field.

    If `is_sent` is true, the author sent a text, and the error keeps its position in this text.
    """
    span = Span(fault.span.line, fault.span.column) if is_sent and fault.span else None
    return BadDefinition(
        stream_field_of_toml_path(fault.setting_path), fault.message, message=fault.message, hint=fault.hint, span=span
    )
