"""Changes at runtime: reload all files, write definitions over HTTP, and create streams on demand."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID, uuid5

from cordwood.app.definitions import Check, Definitions, EndpointDefinitions, PreparesStreams, StreamDefinitions
from cordwood.catalog.catalog import Author, Contents, Layer, Origin
from cordwood.catalog.field_values import Fields
from cordwood.catalog.files import FileCatalog, with_managed
from cordwood.catalog.ids import is_uuid
from cordwood.catalog.managed_files import ManagedFiles
from cordwood.catalog.stream_file import read_stream_file, why_no_stream_name
from cordwood.catalog.toml_writing import toml_text
from cordwood.catalog.versions import Version, added, with_current
from cordwood.errors import (
    BadDefinition,
    BadStreamFile,
    ChangedMeanwhile,
    Fault,
    ReadOnly,
    UnknownEndpoint,
    UnknownStream,
    UnknownVersion,
    did_you_mean,
)
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream

Read = Callable[[], Contents]
T = TypeVar("T", bound=Endpoint | Stream)

_UNKNOWN: Final = {"endpoint": UnknownEndpoint, "stream": UnknownStream}
_WHY_READ_ONLY: Final = {
    Origin.SHIPPED: "it ships with cordwood",
    Origin.FILE: "it stands in a file of the operator's",
}
_INSTEAD: Final = {
    (
        "endpoint",
        Origin.SHIPPED,
    ): "Make an endpoint of another name; only a file of --endpoints stands in for this one.",
    ("endpoint", Origin.FILE): "Change the file in the folder that --endpoints names, and reload.",
    ("stream", Origin.SHIPPED): "Its settings can be changed, such as retention_days, but it is not deleted.",
    ("stream", Origin.FILE): "Change the file that --streams names, and reload.",
}


class Managed(Generic[T]):
    """Changes to endpoints, or to streams, over HTTP: one at a time.

    A change is checked and made durable before it is served. Its version is written before its file: a crash between the
    two leaves a version that was never served, and never loses one.
    """

    def __init__(
        self, catalog: FileCatalog, files: ManagedFiles, definitions: Definitions[T], changing: threading.Lock
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._definitions = definitions
        self._changing = changing

    def origins(self) -> Mapping[str, Origin]:
        """Map each name to the origin of its definition."""
        return self._definitions.origins(self._catalog.contents)

    def create(self, fields: Fields, author: Author) -> T:
        """Create a definition; raise BadDefinition for an invalid field."""
        with self._changing:
            return self._replaced(None, self._definitions.drafted(self._catalog.contents, fields), author)

    def change(self, address: str, fields: Fields, author: Author) -> T:
        """Change the given fields; write nothing if they make no difference."""
        with self._changing:
            old = self._writable(address, author)
            text = self._definitions.redrafted(old, fields)
            return old if text is None else self._replaced(old, text, author)

    def delete(self, address: str, author: Author) -> None:
        """Delete a definition and keep its versions. A changed shipped stream reverts to its shipped settings."""
        with self._changing:
            old = self._writable(address, author)
            if self.origins()[old.name] is not Origin.MANAGED:
                raise self._read_only(old, Origin.SHIPPED)
            definitions = self._definitions
            checked = definitions.checked(self._catalog.contents, old, None, None)
            self._serve(checked, old, None, None, author)
            self._files.drop_old_histories(definitions.kind, [one.id for one in definitions.managed_in(checked)])

    def versions(self, address: str) -> Sequence[Version]:
        """Return the stored versions, oldest first, also of a deleted definition."""
        with self._changing:
            return self._versions(self._id_of(address), self._found(address), address)

    def version(self, address: str, number: int) -> tuple[Version, T | None]:
        """Return a version and its parsed definition; raise UnknownVersion if it is not kept."""
        version = self._numbered(self.versions(address), number)
        if version.text is None:
            return version, None
        try:
            return version, self._definitions.read(version.text)
        except BadDefinition:
            # It was edited by hand or written by another release; its text is still returned.
            return version, None

    def restore(self, address: str, number: int, author: Author) -> T:
        """Make a version the current one, with the checks of a new definition."""
        with self._changing:
            found = self._found(address)
            version = self._numbered(self._versions(self._id_of(address), found, address), number)
            if version.text is None:
                raise UnknownVersion(f"In version {number} it was deleted.", hint="Restore an earlier version.")
            old = None if found is None else self._writable(address, author)
            if old is not None and self._definitions.current_text(old) == version.text:
                return old
            return self._replaced(old, version.text, author)

    def _replaced(self, old: T | None, text: str, author: Author) -> T:
        new = self._definitions.read(text)
        checked = self._definitions.checked(self._catalog.contents, old, new, text)
        self._serve(checked, old, new, text, author)
        return next(one for one in self._definitions.all_of(checked) if one.id == new.id)

    def _serve(self, checked: Contents, old: T | None, new: T | None, text: str | None, author: Author) -> None:
        """Prepare the engine, write version and file, then serve. An error before the last step changes nothing that is served."""
        definitions, one = self._definitions, old or new
        if one is None:
            return
        definitions.prepare(checked)
        try:
            kept = with_current(self._files.versions(definitions.kind, one.id), definitions.current_text(one))
            self._files.write_versions(definitions.kind, one.id, added(kept, text, author.key_id))
            definitions.store(old, new, text)
        except Fault:
            definitions.prepare(self._catalog.contents)
            raise
        self._catalog.replace(checked)

    def _versions(self, definition_id: UUID, found: T | None, address: str) -> Sequence[Version]:
        current = None if found is None else self._definitions.current_text(found)
        kept = with_current(self._files.versions(self._definitions.kind, definition_id), current)
        if not kept and found is None:
            raise self._unknown(address)
        return kept

    def _numbered(self, versions: Sequence[Version], number: int) -> Version:
        found = next((one for one in versions if one.number == number), None)
        if found is None:
            told = f"There is no version {number}."
            raise UnknownVersion(told, hint=f"There are: {', '.join(str(one.number) for one in versions) or 'none'}.")
        return found

    def _writable(self, address: str, author: Author) -> T:
        """Return the definition with this name or UUID; raise if it is read-only or its revision is not the expected one."""
        found = self._found(address)
        if found is None:
            raise self._unknown(address)
        origin = self.origins()[found.name]
        if origin is Origin.FILE or (origin is Origin.SHIPPED and self._definitions.kind == "endpoint"):
            raise self._read_only(found, origin)
        if author.expected is not None and self._definitions.revision(found) not in author.expected:
            told = f"{found.name} has been changed: its revision is {self._definitions.revision(found)}."
            raise ChangedMeanwhile(told, hint="Read it again, and send the change with its new ETag.")
        return found

    def _found(self, address: str) -> T | None:
        every = self._definitions.all_of(self._catalog.contents)
        return next(
            (one for one in every if address in (one.name, str(one.id)) or address.lower() == str(one.id)), None
        )

    def _id_of(self, address: str) -> UUID:
        found = self._found(address)
        if found is not None:
            return found.id
        return UUID(address) if is_uuid(address) else uuid5(self._definitions.namespace, address)

    def _unknown(self, address: str) -> Fault:
        kind = self._definitions.kind
        near = did_you_mean(address, [one.name for one in self._definitions.all_of(self._catalog.contents)])
        return _UNKNOWN[kind](f"There is no {kind} {address!r}.", hint=near)

    def _read_only(self, one: T, origin: Origin) -> Fault:
        kind = self._definitions.kind
        told = f"The {kind} {one.name} is not changed over HTTP: {_WHY_READ_ONLY[origin]}."
        return ReadOnly(told, hint=_INSTEAD[kind, origin])


class Management:
    """Applies one change at a time, after all files were read and checked.

    Streams are created on demand while the data folder's streams file has fewer than `most_new_streams`.
    """

    def __init__(
        self,
        catalog: FileCatalog,
        engine: PreparesStreams,
        files: ManagedFiles,
        read: Read,
        check: Check,
        most_new_streams: int = 0,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._files = files
        self._read = read
        self._most_new_streams = most_new_streams
        self._changing = threading.Lock()
        self.endpoints: Managed[Endpoint] = Managed(catalog, files, EndpointDefinitions(files, check), self._changing)
        self.streams: Managed[Stream] = Managed(catalog, files, StreamDefinitions(files, check, engine), self._changing)

    def reload(self) -> Contents:
        """Reload all files; leave everything unchanged if one has an error."""
        with self._changing:
            contents = self._read()
            self._engine.prepare(contents.streams)
            self._catalog.replace(contents)
            return contents

    def proposed(self, name: str) -> Stream:
        """Return the stream that an event for an unknown name would create; raise UnknownStream if none may be."""
        problem = why_no_stream_name(name)
        if not self._most_new_streams or problem is not None:
            raise self._unknown(name, problem)
        return read_stream_file("", _table(name))[0]

    def make_stream(self, name: str) -> Stream:
        """Create the stream durably; return the existing one if a concurrent request has created it."""
        stream = self.proposed(name)
        with self._changing:
            there = self._catalog.stream(name)
            if there is not None:
                return there
            text = self._files.streams_text()
            made = read_stream_file(str(self._files.streams_file), text)
            reader = self._catalog.contents.reader_of(name)
            if reader is not None:
                raise self._unknown(name, f"It is the name of an endpoint that {reader.name} reads")
            if len(made) >= self._most_new_streams:
                raise self._unknown(name, f"No more streams are made: there are {len(made)} (ingest.new_streams)")
            try:
                managed = self._catalog.contents.layers.managed
                contents = with_managed(self._catalog.contents, Layer(managed.endpoints, (*made, stream)))
                # Before the file is written: a name that the engine refuses would break the next start.
                self._engine.prepare(contents.streams)
            except BadStreamFile as fault:
                raise self._unknown(name, fault.message.rstrip(".")) from fault
            self._files.write(self._files.streams_file, f"{text}{_table(name)}")
            self._catalog.replace(contents)
            return stream

    def _unknown(self, name: str, problem: str | None) -> Fault:
        near = did_you_mean(name, [one.name for one in self._catalog.streams()])
        hint = f"{problem}." if problem else near or "Add it to your streams file."
        return UnknownStream(f"There is no stream {name!r}.", hint=hint)


def _table(name: str) -> str:
    return f"\n# Made for events that were sent to it.\n[[stream]]\nname = {toml_text(name)}\n"
