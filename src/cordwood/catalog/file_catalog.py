"""Read endpoints, streams and alerts from files. A change takes effect only after all files are read and compiled.

The module also writes the definitions that are changed over HTTP, and their earlier versions, to files in the data
folder.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from cordwood.catalog.alert_table import ALERT_FILE_SUFFIX, alert_fault, read_alert_file
from cordwood.catalog.catalog import CatalogContents, CatalogLayer, CatalogLayers, CatalogSources, DefinitionVersion
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.stream_file import parse_stream_toml_tables, read_stream_file
from cordwood.catalog.toml_document import format_toml_assignments, is_uuid
from cordwood.errors import BadEndpointFile, BadStreamFile, BrokenDefinitionFiles, Fault, OutOfDisk, Span, did_you_mean
from cordwood.file_listing import find_files_below, is_reachable_folder, list_files
from cordwood.folder import sync_folder, write_durably
from cordwood.model.definitions import Alert, Dialect, Endpoint, Stream, StreamProjectPath
from cordwood.sql.included_endpoints import link_included_endpoints

_MANAGED_STREAMS_FILE: Final = "streams.toml"
_MANAGED_ENDPOINTS_FOLDER: Final = "endpoints"
_HISTORY_FOLDER: Final = "history"
_ENDPOINT_FILE_SUFFIX: Final = ".sql"
# The maximum number of deleted endpoints, and of deleted streams, whose earlier versions are kept.
MAX_HISTORIES_OF_DELETED_DEFINITIONS: Final = 100
_MAX_VERSIONS_PER_DEFINITION: Final = 50
_MAX_HISTORY_BYTES: Final = 256 * 1024

_STREAMS_FILE_HEADER: Final = "# Streams that were made over HTTP, and for events that were sent to them. Each change over HTTP writes the file anew.\n"


class ManagedDefinitionFiles:
    """The files, in one folder, of definitions that are changed over HTTP. Each write is durable and atomic.

    Endpoint files are named by UUID, because names of endpoints may contain characters that file names cannot.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def streams_file(self) -> Path:
        return self.folder / _MANAGED_STREAMS_FILE

    def endpoint_files(self) -> Sequence[Path]:
        """Return the endpoint files; raise BadEndpointFile if their folder cannot be read."""
        folder = self.folder / _MANAGED_ENDPOINTS_FOLDER
        try:
            return list_files(folder, _ENDPOINT_FILE_SUFFIX)
        except OSError as problem:
            raise _unreadable_folder_fault(folder, problem) from problem

    def endpoint_file(self, endpoint_id: UUID) -> Path:
        return self.folder / _MANAGED_ENDPOINTS_FOLDER / f"{endpoint_id}.sql"

    def streams_text(self) -> str:
        """Return the text of the streams file; the text is empty if there is no such file."""
        return read_text_if_exists(self.streams_file) or ""

    def stream_toml_tables(self) -> list[Mapping[str, object]]:
        """Return the tables of the streams file, without checking their settings."""
        return parse_stream_toml_tables(str(self.streams_file), self.streams_text())

    def write_streams(self, tables: Iterable[Mapping[str, object]]) -> None:
        self.write_file(self.streams_file, streams_file_text(tables))

    def read_versions(self, kind: str, definition_id: UUID) -> tuple[DefinitionVersion, ...]:
        """Return the stored versions of a definition, oldest first; none if the history file is missing or corrupt."""
        return _decode_versions(read_text_if_exists(self._history_file(kind, definition_id)))

    def read_versions_of_deleted_definitions(
        self, kind: str, current: Collection[UUID]
    ) -> Iterator[tuple[UUID, tuple[DefinitionVersion, ...]]]:
        """Yield the UUID and the stored versions of each definition that is not in `current`."""
        for file in self._history_files(kind):
            id_text = file.stem.removeprefix(f"{kind}-")
            if is_uuid(id_text) and UUID(id_text) not in current:
                versions = _decode_versions(read_text_if_exists(file))
                if versions:
                    yield UUID(id_text), versions

    def write_versions(self, kind: str, definition_id: UUID, versions: Sequence[DefinitionVersion]) -> None:
        text = msgspec.json.encode(_drop_excess_versions(versions)).decode()
        self.write_file(self._history_file(kind, definition_id), text)

    def prune_histories_of_deleted_definitions(self, kind: str, current: Iterable[UUID]) -> None:
        """Remove the history files of deleted definitions, except the `MAX_HISTORIES_OF_DELETED_DEFINITIONS` latest."""
        names = {self._history_file(kind, definition_id).name for definition_id in current}
        files = [file for file in self._history_files(kind) if file.name not in names]
        for file in sorted(files, key=lambda history_file: history_file.stat().st_mtime, reverse=True)[
            MAX_HISTORIES_OF_DELETED_DEFINITIONS:
        ]:
            file.unlink(missing_ok=True)

    def write_file(self, file: Path, text: str) -> None:
        """Replace a file; raise OutOfDisk if it cannot be written."""
        with _translate_write_errors(file):
            if not file.parent.exists():
                file.parent.mkdir(mode=0o700, exist_ok=True)
                sync_folder(file.parent.parent)
            write_durably(file, text.encode())

    def remove_file(self, file: Path) -> None:
        """Remove a file durably; raise OutOfDisk if it cannot be removed."""
        with _translate_write_errors(file):
            file.unlink(missing_ok=True)
            sync_folder(file.parent)

    def _history_files(self, kind: str) -> list[Path]:
        """Return the history files of definitions of one kind; none if their folder cannot be read.

        Without histories, the service can still serve and change all definitions.
        """
        with suppress(OSError):
            files = list_files(self.folder / _HISTORY_FOLDER, ".json")
            return [file for file in files if file.name.startswith(f"{kind}-")]
        return []

    def _history_file(self, kind: str, definition_id: UUID) -> Path:
        return self.folder / _HISTORY_FOLDER / f"{kind}-{definition_id}.json"


@contextmanager
def _translate_write_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise OutOfDisk(
            f"The file {file.name} in the data folder cannot be written: {problem.strerror}.",
            hint="Free space on the disk of the data folder, or make it writable again.",
            retry_after=30,
        ) from problem


def streams_file_text(tables: Iterable[Mapping[str, object]]) -> str:
    """Format the tables of streams as the text of a streams file."""
    return _STREAMS_FILE_HEADER + "".join(
        "\n[[stream]]\n" + "".join(f"{line}\n" for line in format_toml_assignments(table)) for table in tables
    )


def read_text_if_exists(file: Path) -> str | None:
    """Read a file; return None if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return file.read_text(encoding="utf-8")
    return None


def _decode_versions(text: str | None) -> tuple[DefinitionVersion, ...]:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text or "[]", type=tuple[DefinitionVersion, ...])
    return ()


def append_version_if_edited_manually(
    versions: Sequence[DefinitionVersion], current: str | None
) -> tuple[DefinitionVersion, ...]:
    """Append the current text as a version if it differs from the last one, which means that it was edited by hand."""
    last = versions[-1].text if versions else None
    return tuple(versions) if last == current else append_version(versions, current, "")


def append_version(
    versions: Sequence[DefinitionVersion], text: str | None, author_key_id: str
) -> tuple[DefinitionVersion, ...]:
    number = versions[-1].number + 1 if versions else 1
    return (*versions, DefinitionVersion(number, time.time(), author_key_id, text))


def _drop_excess_versions(versions: Sequence[DefinitionVersion]) -> tuple[DefinitionVersion, ...]:
    """Drop the oldest versions that exceed the limits of number and total size, but never the last two versions."""
    recent: list[DefinitionVersion] = []
    size = 0
    for version in reversed(versions[-_MAX_VERSIONS_PER_DEFINITION:]):
        size += len((version.text or "").encode())
        if size > _MAX_HISTORY_BYTES and len(recent) > 1:
            break
        recent.append(version)
    return tuple(reversed(recent))


# A function that compiles an endpoint, given all streams. For an error it raises a fault with the position in the file.
CheckEndpoint = Callable[[Endpoint, Sequence[Stream]], object]
# A function that compiles an alert's query over its endpoint. For an error it raises a fault with the position in the
# file.
CheckAlert = Callable[[Alert, Endpoint], object]


class FileCatalog:
    """A catalog that was read from files. Its contents are always replaced as a whole."""

    def __init__(self, contents: CatalogContents) -> None:
        self.replace_contents(contents)

    @property
    def contents(self) -> CatalogContents:
        """The endpoints, streams and alerts that are in effect."""
        return self._contents

    def replace_contents(self, contents: CatalogContents) -> None:
        self._contents = contents
        self._endpoints = {definition.name: definition for definition in contents.endpoints}
        self._endpoint_ids = {str(definition.id): definition for definition in contents.endpoints}
        self._streams = {definition.name: definition for definition in contents.streams}
        self._stream_ids = {str(definition.id): definition for definition in contents.streams}

    def endpoint(self, name_or_id: str) -> Endpoint | None:
        return self._endpoints.get(name_or_id) or self._endpoint_ids.get(name_or_id.lower())

    def endpoints(self) -> Sequence[Endpoint]:
        return self._contents.endpoints

    def stream(self, name_or_id: str) -> Stream | None:
        return self._streams.get(name_or_id) or self._stream_ids.get(name_or_id.lower())

    def streams(self) -> Sequence[Stream]:
        return self._contents.streams

    def alerts(self) -> Sequence[Alert]:
        return self._contents.alerts


def read_catalog(
    sources: CatalogSources, check_endpoint: CheckEndpoint, check_alert: CheckAlert = lambda _, __: None
) -> CatalogContents:
    """Read and compile all definition files; raise BrokenDefinitionFiles with all errors if any file has one."""
    faults: list[Fault] = []
    streams = _read_stream_layers(sources)
    operator_files = _find_operator_files(sources.endpoints_folder, faults)
    managed = ManagedDefinitionFiles(sources.managed_folder) if sources.managed_folder is not None else None
    endpoints = [
        tuple(_read_endpoint_files(files, faults))
        for files in (
            _shipped_endpoint_files() if sources.includes_shipped else (),
            _with_path_texts(managed.endpoint_files() if managed is not None else ()),
            _with_path_texts(file for file in operator_files if _is_endpoint_file_name(file.name)),
        )
    ]
    alert_files = [file for file in operator_files if file.name.endswith(ALERT_FILE_SUFFIX)]
    alerts = (), (), tuple(_read_alert_files(alert_files, faults))
    contents = _merge_layers(CatalogLayers(*map(CatalogLayer, endpoints, streams, alerts)), faults)
    for endpoint in contents.endpoints:
        try:
            check_endpoint(endpoint, contents.streams)
        except Fault as fault:
            faults.append(fault)
    faults += find_alert_faults(contents, check_alert)
    if faults:
        raise BrokenDefinitionFiles(faults)
    return contents


def find_alert_faults(contents: CatalogContents, check_alert: CheckAlert) -> list[Fault]:
    """Compile the queries of all alerts, and return the errors."""
    endpoints = {endpoint.name: endpoint for endpoint in contents.endpoints}
    faults: list[Fault] = []
    for alert in contents.alerts:
        endpoint = endpoints.get(alert.endpoint_name)
        try:
            if endpoint is None:
                message = f"there is no endpoint {alert.endpoint_name!r}."
                raise alert_fault(alert, message, did_you_mean(alert.endpoint_name, endpoints))
            check_alert(alert, endpoint)
        except Fault as fault:
            faults.append(fault)
    return faults


def replace_managed_layer(contents: CatalogContents, managed: CatalogLayer) -> CatalogContents:
    """Return the contents with another managed layer, which has the definitions that are changed over HTTP.

    Raise BadStreamFile or BrokenDefinitionFiles if the layer conflicts with the others.
    """
    faults: list[Fault] = []
    replaced = _merge_layers(msgspec.structs.replace(contents.layers, managed=managed), faults)
    if faults:
        raise BrokenDefinitionFiles(faults)
    return replaced


def _merge_layers(layers: CatalogLayers, faults: list[Fault]) -> CatalogContents:
    streams = _merge_streams(layers)
    merged = [_add_streams_for_clickhouse_dialect(streams, endpoint) for endpoint in _merge_endpoints(layers, faults)]
    endpoints = sorted(
        link_included_endpoints(merged, {stream.name for stream in streams}, faults), key=lambda endpoint: endpoint.name
    )
    return CatalogContents(tuple(endpoints), streams, layers, _merge_alerts(endpoints, layers, faults))


def _merge_alerts(endpoints: Sequence[Endpoint], layers: CatalogLayers, faults: list[Fault]) -> tuple[Alert, ...]:
    """Return the alerts from endpoints and from alert files; add an error to `faults` for a name that is used twice."""
    merged: dict[str, Alert] = {}
    of_endpoints = [endpoint.alert for endpoint in endpoints if endpoint.alert is not None]
    for alert in [*of_endpoints, *layers.operator_files.alerts]:
        other = merged.setdefault(alert.name.casefold(), alert)
        if other is not alert:
            faults.append(alert_fault(alert, f"the name is also that of {other.file}."))
    return tuple(sorted(merged.values(), key=lambda alert: alert.name))


def _read_alert_files(files: Iterable[Path], faults: list[Fault]) -> Iterator[Alert]:
    for file in files:
        try:
            yield read_alert_file(str(file), file.read_text(encoding="utf-8"))
        except Fault as fault:
            faults.append(fault)
        except (OSError, UnicodeDecodeError) as problem:
            faults.append(_unreadable_file_fault(str(file), problem))


def _shipped_endpoint_files() -> Iterator[tuple[str, Traversable]]:
    folder = resources.files("cordwood") / "endpoints"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return ((f"cordwood/endpoints/{file.name}", file) for file in files if file.name.endswith(".sql"))


def _find_operator_files(folder: Path | None, faults: list[Fault]) -> list[Path]:
    """Return the files of endpoints and alerts below the folder; add an error to `faults` for what cannot be read."""
    if folder is None:
        return []
    if not is_reachable_folder(folder):
        raise BadEndpointFile(f"The endpoints folder {folder} does not exist, or cannot be reached.")
    return find_files_below(
        folder,
        lambda name: _is_endpoint_file_name(name) or name.endswith(ALERT_FILE_SUFFIX),
        lambda path, problem: faults.append(_unreadable_folder_fault(path, problem)),
    )


def _is_endpoint_file_name(name: str) -> bool:
    """Return whether a file is an endpoint's. Names that differ from `.sql` in case count too, and are refused later."""
    return name.lower().endswith(_ENDPOINT_FILE_SUFFIX)


def _with_path_texts(files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    return ((str(file), file) for file in files)


def _read_endpoint_files(files: Iterable[tuple[str, Traversable]], faults: list[Fault]) -> Iterator[Endpoint]:
    for path, file in files:
        if not path.endswith(_ENDPOINT_FILE_SUFFIX):
            problem = "An endpoint file ends in .sql, in small letters."
            faults.append(BadEndpointFile(problem, hint="Rename it.", span=Span(1, 1, path)))
            continue
        try:
            yield read_endpoint_file(path, file.read_text(encoding="utf-8"))
        except Fault as fault:
            faults.append(fault)
        except (OSError, UnicodeDecodeError) as problem:
            faults.append(_unreadable_file_fault(path, problem))


def _unreadable_folder_fault(folder: Path, problem: OSError) -> Fault:
    return BadEndpointFile(f"The folder {folder} cannot be read: {problem.strerror}.")


def _unreadable_file_fault(path: str, problem: Exception) -> Fault:
    return BadEndpointFile(f"The file cannot be read: {problem}.", span=Span(1, 1, path))


def _merge_endpoints(layers: CatalogLayers, faults: list[Fault]) -> list[Endpoint]:
    """Merge the layers. An endpoint replaces the endpoints of the same name in earlier layers.

    The names and ids of the merged endpoints must be unique; an error is added to `faults` for each duplicate.
    """
    operator_names = {endpoint.name for endpoint in layers.operator_files.endpoints}
    managed = [endpoint for endpoint in layers.managed.endpoints if endpoint.name not in operator_names]
    later = operator_names | {endpoint.name for endpoint in managed}
    shipped = [endpoint for endpoint in layers.shipped.endpoints if endpoint.name not in later]
    merged: list[Endpoint] = []
    for endpoint in [*shipped, *managed, *layers.operator_files.endpoints]:
        for key, duplicate in (
            ("name", _find_duplicate(merged, "name", endpoint)),
            ("id", _find_duplicate(merged, "id", endpoint)),
        ):
            if duplicate is not None:
                problem = f"The {key} {getattr(endpoint, key)} is also that of {duplicate.file}."
                faults.append(BadEndpointFile(problem, span=Span(1, 1, endpoint.file)))
                break
        else:
            merged.append(endpoint)
    return merged


def _add_streams_for_clickhouse_dialect(streams: Sequence[Stream], endpoint: Endpoint) -> Endpoint:
    """Return the endpoint; if its query is in ClickHouse's dialect, add all streams to it.

    The revision of such an endpoint then also depends on the streams.
    """
    if endpoint.dialect is Dialect.BIGQUERY:
        return endpoint
    fields_by_stream = tuple(StreamProjectPath(stream.name, stream.project_at) for stream in streams)
    revision = sha256(repr((endpoint.revision, fields_by_stream)).encode()).hexdigest()
    return msgspec.structs.replace(endpoint, streams=fields_by_stream, revision=revision)


def _find_duplicate(endpoints: Sequence[Endpoint], key: str, endpoint: Endpoint) -> Endpoint | None:
    return next((candidate for candidate in endpoints if getattr(candidate, key) == getattr(endpoint, key)), None)


def _read_stream_layers(sources: CatalogSources) -> list[tuple[Stream, ...]]:
    managed = ManagedDefinitionFiles(sources.managed_folder).streams_file if sources.managed_folder else None
    return [
        _read_shipped_streams() if sources.includes_shipped else (),
        _read_streams_file(managed, may_be_missing=True) if managed is not None else (),
        _read_streams_file(sources.streams_file) if sources.streams_file is not None else (),
    ]


def _merge_streams(layers: CatalogLayers) -> tuple[Stream, ...]:
    by_name = {stream.name: stream for stream in layers.shipped.streams}
    for layer in (layers.managed, layers.operator_files):
        by_name |= {
            stream.name: _inherit_shipped_project_path(by_name.get(stream.name), stream) for stream in layer.streams
        }
    return _require_distinct_streams(tuple(by_name.values()))


def _require_distinct_streams(streams: tuple[Stream, ...]) -> tuple[Stream, ...]:
    """Return the streams unchanged; raise BadStreamFile if two have the same id, or names that differ only in case."""
    ids: dict[UUID, str] = {}
    names: dict[str, str] = {}
    for stream in streams:
        other_name = names.setdefault(stream.name.casefold(), stream.name)
        if other_name != stream.name:
            raise BadStreamFile(f"The streams {other_name} and {stream.name} differ only in small and capital letters.")
        if stream.id in ids:
            raise BadStreamFile(f"The id {stream.id} of {stream.name} is also that of {ids[stream.id]}.")
        ids[stream.id] = stream.name
    return streams


def _inherit_shipped_project_path(shipped: Stream | None, stream: Stream) -> Stream:
    """Return a stream that replaces a shipped one, with the shipped `project_at` unless the stream sets its own.

    `project_at` is the path to the project in an event. Shipped endpoints rely on it.
    """
    return msgspec.structs.replace(stream, project_at=stream.project_at or shipped.project_at) if shipped else stream


def _read_shipped_streams() -> tuple[Stream, ...]:
    file = resources.files("cordwood") / "endpoints" / "streams.toml"
    return read_stream_file("cordwood/endpoints/streams.toml", file.read_text(encoding="utf-8"))


def _read_streams_file(file: Path, *, may_be_missing: bool = False) -> tuple[Stream, ...]:
    try:
        return read_stream_file(str(file), file.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        if may_be_missing:
            return ()
        raise BadStreamFile(f"The streams file {file} cannot be read: {problem}.") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise BadStreamFile(f"The streams file {file} cannot be read: {problem}.") from problem
