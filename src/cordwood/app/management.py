"""Changes while the service runs: reload all files, change definitions over HTTP, and create streams on demand."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar
from uuid import UUID, uuid5

from cordwood.app.definitions import (
    DefinitionChecks,
    DefinitionDraft,
    DefinitionOperations,
    EndpointOperations,
    StreamOperations,
    StreamTableCreator,
)
from cordwood.catalog.catalog import (
    CatalogContents,
    CatalogLayer,
    ChangeContext,
    DefinitionOrigin,
    DefinitionSource,
    DefinitionVersion,
    SentDefinition,
)
from cordwood.catalog.file_catalog import (
    FileCatalog,
    ManagedDefinitionFiles,
    append_version,
    append_version_if_edited_manually,
    replace_managed_layer,
)
from cordwood.catalog.stream_file import new_stream_name_problem, read_stream_file
from cordwood.catalog.toml_document import is_uuid, quote_toml_text
from cordwood.errors import (
    BadDefinition,
    BadStreamFile,
    BodyTooLarge,
    Fault,
    ReadOnlyDefinition,
    RevisionMismatch,
    UnknownDefinitionVersion,
    UnknownEndpoint,
    UnknownStream,
    did_you_mean,
)
from cordwood.model.definitions import Endpoint, Stream

ReadCatalogContents = Callable[[], CatalogContents]
T = TypeVar("T", bound=Endpoint | Stream)

_UNKNOWN_FAULTS_BY_DEFINITION_KIND: Final = {"endpoint": UnknownEndpoint, "stream": UnknownStream}
_READ_ONLY_REASONS_BY_ORIGIN: Final = {
    DefinitionOrigin.SHIPPED: "it ships with cordwood",
    DefinitionOrigin.FILE: "it is defined in a file of the operator",
}
_READ_ONLY_HINTS: Final = {
    (
        "endpoint",
        DefinitionOrigin.SHIPPED,
    ): "Make an endpoint of another name; only a file of --endpoints can replace this one.",
    ("endpoint", DefinitionOrigin.FILE): "Change the file in the folder that --endpoints names, and reload.",
    ("stream", DefinitionOrigin.SHIPPED): "Its settings can be changed, such as retention_days, but it is not deleted.",
    ("stream", DefinitionOrigin.FILE): "Change the file that --streams names, and reload.",
}


class ManagedDefinitions(Generic[T]):
    """Applies changes that are sent over HTTP to endpoints, or to streams, one change at a time.

    A change is checked and made durable before it takes effect. The new version is written to the history of versions
    first, and then to the definition's file. After a crash between the two writes, the history has a version that was
    never in use, but no version is missing.
    """

    def __init__(
        self,
        catalog: FileCatalog,
        files: ManagedDefinitionFiles,
        definitions: DefinitionOperations[T],
        changing: threading.Lock,
    ) -> None:
        self._catalog = catalog
        self._managed_files = files
        self._definition_operations = definitions
        self._change_lock = changing

    def origins_by_name(self) -> Mapping[str, DefinitionOrigin]:
        """Return the origin of each definition by its name: shipped with cordwood, a file of the operator, or HTTP."""
        return self._definition_operations.origins_by_name(self._catalog.contents)

    def find(self, address: str) -> DefinitionSource[T]:
        """Return the definition with this name or UUID, together with its origin and text."""
        with self._change_lock:
            definition = self._find_definition(address)
            if definition is None:
                raise self._unknown_definition_fault(address)
            return self._definition_source(definition, self._catalog.contents)

    def create(self, sent: SentDefinition, author: ChangeContext, *, is_dry: bool = False) -> DefinitionSource[T]:
        """Create a definition; raise BadDefinition for an invalid field."""
        with self._change_lock:
            draft = self._definition_operations.new_draft(self._catalog.contents, sent)
            return self._apply_draft(None, draft, author, is_dry=is_dry)

    def change(
        self, address: str, sent: SentDefinition, author: ChangeContext, *, is_dry: bool = False
    ) -> DefinitionSource[T]:
        """Change a definition; if `sent` would change nothing, write nothing.

        If `sent` has JSON fields, change only these. If it is a text, replace the whole text of the definition.
        """
        with self._change_lock:
            old = self._require_writable_definition(address, author)
            draft = self._definition_operations.changed_draft(old, sent)
            if draft is None:
                return self._definition_source(old, self._catalog.contents)
            return self._apply_draft(old, draft, author, is_dry=is_dry)

    def delete(self, address: str, author: ChangeContext) -> None:
        """Delete a definition and keep its versions.

        If the definition replaces a shipped stream, the stream gets its shipped settings back.
        """
        with self._change_lock:
            old = self._require_writable_definition(address, author)
            if self.origins_by_name()[old.name] is not DefinitionOrigin.MANAGED:
                raise self._read_only_fault(old, DefinitionOrigin.SHIPPED)
            definitions = self._definition_operations
            checked = definitions.contents_after_change(self._catalog.contents, old, None, None)
            self._commit_change(checked, old, None, None, author)
            self._managed_files.prune_histories_of_deleted_definitions(
                definitions.definition_kind, [definition.id for definition in definitions.managed_definitions(checked)]
            )

    def versions(self, address: str) -> Sequence[DefinitionVersion]:
        """Return the stored versions, oldest first. The versions of a deleted definition are also returned."""
        with self._change_lock:
            return self._read_versions(self._id_of(address), self._find_definition(address), address)

    def version(self, address: str, number: int) -> tuple[DefinitionVersion, T | None]:
        """Return a version and its definition if it can be parsed; raise UnknownDefinitionVersion if there is none."""
        version = self._find_version(self.versions(address), number)
        if version.text is None:
            return version, None
        try:
            return version, self._definition_operations.parse_draft(DefinitionDraft(version.text))
        except BadDefinition:
            # The version cannot be parsed, because it was edited by hand or written by another release. Return its text
            # anyway.
            return version, None

    def restore(self, address: str, number: int, author: ChangeContext) -> DefinitionSource[T]:
        """Make an earlier version the current one, with the checks of a new definition."""
        with self._change_lock:
            current = self._find_definition(address)
            version = self._find_version(self._read_versions(self._id_of(address), current, address), number)
            if version.text is None:
                raise UnknownDefinitionVersion(
                    f"In version {number} it was deleted.", hint="Restore an earlier version."
                )
            old = None if current is None else self._require_writable_definition(address, author)
            if old is not None and self._definition_operations.stored_text(old) == version.text:
                return self._definition_source(old, self._catalog.contents)
            return self._apply_draft(old, DefinitionDraft(version.text), author)

    def _apply_draft(
        self, old: T | None, draft: DefinitionDraft, author: ChangeContext, *, is_dry: bool = False
    ) -> DefinitionSource[T]:
        with self._add_error_positions(draft):
            new = self._definition_operations.parse_draft(draft)
            checked = self._definition_operations.contents_after_change(self._catalog.contents, old, new, draft)
            if is_dry:
                self._definition_operations.create_or_check_engine_tables(checked, only_check=True)
            else:
                self._commit_change(checked, old, new, draft.text_to_store, author)
        found = next(one for one in self._definition_operations.all_definitions(checked) if one.id == new.id)
        return DefinitionSource(
            found, self._definition_operations.origins_by_name(checked)[found.name], draft.text_to_store
        )

    @contextmanager
    def _add_error_positions(self, draft: DefinitionDraft) -> Iterator[None]:
        """Add a position to an error that the `with` block raises without one.

        It is the position, in the text that the author sent, of the setting that has the error.
        """
        try:
            yield
        except BadDefinition as fault:
            if draft.sent_text is not None and fault.span is None:
                fault.span = self._definition_operations.span_of_field(fault.field, draft.sent_text)
            raise

    def _definition_source(self, definition: T, contents: CatalogContents) -> DefinitionSource[T]:
        origin = self._definition_operations.origins_by_name(contents)[definition.name]
        return DefinitionSource(definition, origin, self._definition_operations.definition_text(definition, origin))

    def _commit_change(
        self, checked: CatalogContents, old: T | None, new: T | None, text: str | None, author: ChangeContext
    ) -> None:
        """Prepare the engine, write the new version and the definition's file, and put the change in force.

        If a write fails, the engine is prepared again for the unchanged definitions.
        """
        definitions, definition = self._definition_operations, old or new
        if definition is None:
            return
        definitions.create_or_check_engine_tables(checked)
        try:
            versions = append_version_if_edited_manually(
                self._managed_files.read_versions(definitions.definition_kind, definition.id),
                definitions.stored_text(definition),
            )
            self._managed_files.write_versions(
                definitions.definition_kind, definition.id, append_version(versions, text, author.key_id)
            )
            definitions.store_definition(old, new, text)
        except Fault:
            definitions.create_or_check_engine_tables(self._catalog.contents)
            raise
        self._catalog.replace_contents(checked)

    def _read_versions(self, definition_id: UUID, definition: T | None, address: str) -> Sequence[DefinitionVersion]:
        current = None if definition is None else self._definition_operations.stored_text(definition)
        versions = append_version_if_edited_manually(
            self._managed_files.read_versions(self._definition_operations.definition_kind, definition_id), current
        )
        if not versions and definition is None:
            raise self._unknown_definition_fault(address)
        return versions

    def _find_version(self, versions: Sequence[DefinitionVersion], number: int) -> DefinitionVersion:
        version = next((candidate for candidate in versions if candidate.number == number), None)
        if version is None:
            message = f"There is no version {number}."
            raise UnknownDefinitionVersion(
                message, hint=f"There are: {', '.join(str(candidate.number) for candidate in versions) or 'none'}."
            )
        return version

    def _require_writable_definition(self, address: str, author: ChangeContext) -> T:
        """Return a definition; raise an error if it is read-only or its revision is not one that the author expects."""
        definition = self._find_definition(address)
        if definition is None:
            raise self._unknown_definition_fault(address)
        origin = self.origins_by_name()[definition.name]
        if origin is DefinitionOrigin.FILE or (
            origin is DefinitionOrigin.SHIPPED and self._definition_operations.definition_kind == "endpoint"
        ):
            raise self._read_only_fault(definition, origin)
        if (
            author.expected_revisions is not None
            and self._definition_operations.revision_of(definition) not in author.expected_revisions
        ):
            message = f"{definition.name} has been changed: its revision is {self._definition_operations.revision_of(definition)}."
            raise RevisionMismatch(message, hint="Read it again, and send the change with its new ETag.")
        return definition

    def _find_definition(self, address: str) -> T | None:
        definitions = self._definition_operations.all_definitions(self._catalog.contents)
        return next(
            (
                definition
                for definition in definitions
                if address in (definition.name, str(definition.id)) or address.lower() == str(definition.id)
            ),
            None,
        )

    def _id_of(self, address: str) -> UUID:
        definition = self._find_definition(address)
        if definition is not None:
            return definition.id
        if is_uuid(address):
            return UUID(address)
        return self._id_of_deleted_definition(address) or uuid5(self._definition_operations.id_namespace, address)

    def _id_of_deleted_definition(self, name: str) -> UUID | None:
        """Return the UUID of the definition that had this name when it was deleted, or None if there is none.

        If there are several, it is the one that was deleted last.
        """
        operations, contents = self._definition_operations, self._catalog.contents
        current = (*operations.all_definitions(contents), *operations.managed_definitions(contents))
        histories = self._managed_files.read_versions_of_deleted_definitions(
            operations.definition_kind, {definition.id for definition in current}
        )
        found = [(versions[-1].at, deleted_id) for deleted_id, versions in histories if self._had_name(versions, name)]
        return max(found)[1] if found else None

    def _had_name(self, versions: Sequence[DefinitionVersion], name: str) -> bool:
        """Return whether the last text in a history has this name."""
        text = next((version.text for version in reversed(versions) if version.text is not None), "")
        # Most texts need not be parsed. A name can be written differently in the text only with escape sequences.
        if name not in text and "\\" not in text:
            return False
        with suppress(BadDefinition, BodyTooLarge):
            return self._definition_operations.parse_draft(DefinitionDraft(text)).name == name
        return False

    def _unknown_definition_fault(self, address: str) -> Fault:
        kind = self._definition_operations.definition_kind
        suggestion = did_you_mean(
            address,
            [definition.name for definition in self._definition_operations.all_definitions(self._catalog.contents)],
        )
        return _UNKNOWN_FAULTS_BY_DEFINITION_KIND[kind](f"There is no {kind} {address!r}.", hint=suggestion)

    def _read_only_fault(self, definition: T, origin: DefinitionOrigin) -> Fault:
        kind = self._definition_operations.definition_kind
        message = f"The {kind} {definition.name} is not changed over HTTP: {_READ_ONLY_REASONS_BY_ORIGIN[origin]}."
        return ReadOnlyDefinition(message, hint=_READ_ONLY_HINTS[kind, origin])


class DefinitionManager:
    """Reloads files, applies changes of definitions, and creates streams, one operation at a time.

    Streams are created on demand while the data folder's streams file has fewer streams than `max_new_streams`. Each
    key may create half of the number that remains of this limit after the streams created with other keys. So no key
    can use up the whole limit.
    """

    def __init__(
        self,
        catalog: FileCatalog,
        engine: StreamTableCreator,
        files: ManagedDefinitionFiles,
        read: ReadCatalogContents,
        checks: DefinitionChecks,
        max_new_streams: int = 0,
    ) -> None:
        self._catalog = catalog
        self._table_creator = engine
        self._managed_files = files
        self._read_catalog_contents = read
        self._max_streams_created_on_demand = max_new_streams
        self._change_lock = threading.Lock()
        # For each stream created since the start of the service: the id of the key that created it.
        self._creator_key_ids_by_stream: dict[str, str] = {}
        self.endpoint_definitions: ManagedDefinitions[Endpoint] = ManagedDefinitions(
            catalog, files, EndpointOperations(files, checks), self._change_lock
        )
        self.stream_definitions: ManagedDefinitions[Stream] = ManagedDefinitions(
            catalog, files, StreamOperations(files, checks.check_endpoint, engine), self._change_lock
        )

    def reload(self) -> CatalogContents:
        """Read all files again; leave all definitions unchanged if a file has an error."""
        with self._change_lock:
            contents = self._read_catalog_contents()
            self._table_creator.create_stream_tables(contents.streams)
            self._catalog.replace_contents(contents)
            return contents

    def proposed_stream(self, name: str) -> Stream:
        """Return the stream that would be created for an event with an unknown stream name.

        Raise UnknownStream if streams are not created on demand, or if the name is invalid.
        """
        problem = new_stream_name_problem(name)
        if not self._max_streams_created_on_demand or problem is not None:
            raise self._unknown_stream_fault(name, problem)
        return read_stream_file("", _stream_table_toml(name))[0]

    def create_stream(self, name: str, key_id: str | None) -> Stream:
        """Create and store the stream, or return it if a concurrent request has created it.

        There is a limit for all keys together, and a limit for each key. If `key_id` is None, only the former applies.
        """
        stream = self.proposed_stream(name)
        with self._change_lock:
            existing = self._catalog.stream(name)
            if existing is not None:
                return existing
            text = self._managed_files.streams_text()
            created = read_stream_file(str(self._managed_files.streams_file), text)
            reader = self._catalog.contents.find_endpoint_that_includes(name)
            if reader is not None:
                raise self._unknown_stream_fault(name, f"It is the name of an endpoint that {reader.name} reads")
            self._require_below_creation_limit(name, created, key_id)
            try:
                managed = self._catalog.contents.layers.managed
                contents = replace_managed_layer(
                    self._catalog.contents, CatalogLayer(managed.endpoints, (*created, stream))
                )
                # Prepare the engine before the file is written: if the engine refused the stream's name only after
                # that, the next start of the service would fail.
                self._table_creator.create_stream_tables(contents.streams)
            except BadStreamFile as fault:
                raise self._unknown_stream_fault(name, fault.message.rstrip(".")) from fault
            self._managed_files.write_file(self._managed_files.streams_file, f"{text}{_stream_table_toml(name)}")
            self._catalog.replace_contents(contents)
            if key_id is not None:
                self._creator_key_ids_by_stream[name] = key_id
            return stream

    def _require_below_creation_limit(self, name: str, created: Sequence[Stream], key_id: str | None) -> None:
        """Raise UnknownStream if the limit for all keys is reached, or if the key has created its share of streams.

        The share is half of the number that remains of the limit after the streams created with other keys.
        """
        left = self._max_streams_created_on_demand - len(created)
        if left <= 0:
            raise self._unknown_stream_fault(
                name, f"No more streams are created: there are {len(created)} (ingest.new_streams)"
            )
        names = {stream.name for stream in created}
        self._creator_key_ids_by_stream = {
            stream: key for stream, key in self._creator_key_ids_by_stream.items() if stream in names
        }
        own = sum(key == key_id for key in self._creator_key_ids_by_stream.values())
        if key_id is not None and own >= (left + own + 1) // 2:
            raise self._unknown_stream_fault(
                name,
                f"This key has created its share of {own} streams: the other {left} are for other keys."
                " Create it with a private key, or raise ingest.new_streams",
            )

    def _unknown_stream_fault(self, name: str, problem: str | None) -> Fault:
        suggestion = did_you_mean(name, [stream.name for stream in self._catalog.streams()])
        hint = f"{problem}." if problem else suggestion or "Add it to your streams file."
        return UnknownStream(f"There is no stream {name!r}.", hint=hint)


def _stream_table_toml(name: str) -> str:
    return f"\n# Made for events that were sent to it.\n[[stream]]\nname = {quote_toml_text(name)}\n"
