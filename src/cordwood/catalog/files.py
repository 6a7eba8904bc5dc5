"""Endpoints and streams from files: all are read and compiled, then replaced at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from uuid import UUID

import msgspec

from cordwood.catalog.catalog import Contents, Layer, Layers, Sources
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.managed_files import ManagedFiles
from cordwood.catalog.stream_file import read_stream_file
from cordwood.errors import BadEndpointFile, BadStreamFile, BrokenFiles, Fault, Span
from cordwood.model.endpoint import Dialect, Endpoint, StreamPlace
from cordwood.model.stream import Stream
from cordwood.sql.included import with_included

# Compiles an endpoint against the streams; raises a fault with its place in the file.
Check = Callable[[Endpoint, Sequence[Stream]], object]


class FileCatalog:
    """A catalog whose contents are replaced atomically: files with errors never change it."""

    def __init__(self, contents: Contents) -> None:
        self.replace(contents)

    @property
    def contents(self) -> Contents:
        """The current contents."""
        return self._contents

    def replace(self, contents: Contents) -> None:
        self._contents = contents
        self._endpoints = {one.name: one for one in contents.endpoints}
        self._endpoint_ids = {str(one.id): one for one in contents.endpoints}
        self._streams = {one.name: one for one in contents.streams}
        self._stream_ids = {str(one.id): one for one in contents.streams}

    def endpoint(self, name_or_id: str) -> Endpoint | None:
        return self._endpoints.get(name_or_id) or self._endpoint_ids.get(name_or_id.lower())

    def endpoints(self) -> Sequence[Endpoint]:
        return self._contents.endpoints

    def stream(self, name_or_id: str) -> Stream | None:
        return self._streams.get(name_or_id) or self._stream_ids.get(name_or_id.lower())

    def streams(self) -> Sequence[Stream]:
        return self._contents.streams


def read_contents(sources: Sources, check: Check) -> Contents:
    """Read and compile all files; raise BrokenFiles with the errors of every file."""
    faults: list[Fault] = []
    streams = _stream_layers(sources)
    endpoints = [
        tuple(_read_all(files, faults))
        for files in (
            _shipped_files() if sources.shipped else (),
            ManagedFiles(sources.managed).endpoint_files() if sources.managed is not None else (),
            _own_files(sources.endpoints),
        )
    ]
    contents = _merged(Layers(*map(Layer, endpoints, streams)), faults)
    for endpoint in contents.endpoints:
        try:
            check(endpoint, contents.streams)
        except Fault as fault:
            faults.append(fault)
    if faults:
        raise BrokenFiles(faults)
    return contents


def with_managed(contents: Contents, managed: Layer) -> Contents:
    """Replace the managed layer; raise BadStreamFile or BrokenFiles if it does not fit the others."""
    faults: list[Fault] = []
    replaced = _merged(msgspec.structs.replace(contents.layers, managed=managed), faults)
    if faults:
        raise BrokenFiles(faults)
    return replaced


def _merged(layers: Layers, faults: list[Fault]) -> Contents:
    streams = _merged_streams(layers)
    merged = [_over(streams, endpoint) for endpoint in _merged_endpoints(layers, faults)]
    endpoints = with_included(merged, {stream.name for stream in streams}, faults)
    return Contents(tuple(sorted(endpoints, key=lambda one: one.name)), streams, layers)


def _shipped_files() -> Iterator[tuple[str, Traversable]]:
    folder = resources.files("cordwood") / "endpoints"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return ((f"cordwood/endpoints/{file.name}", file) for file in files if file.name.endswith(".sql"))


def _own_files(folder: Path | None) -> Iterator[tuple[str, Traversable]]:
    if folder is None:
        return iter(())
    if not folder.is_dir():
        raise BadEndpointFile(f"The endpoints folder {folder} does not exist.")
    return ((str(file), file) for file in sorted(folder.rglob("*.[sS][qQ][lL]")))


def _read_all(files: Iterable[tuple[str, Traversable]], faults: list[Fault]) -> Iterator[Endpoint]:
    for path, file in files:
        if not path.endswith(".sql"):
            problem = "An endpoint file ends in .sql, in small letters."
            faults.append(BadEndpointFile(problem, hint="Rename it.", span=Span(1, 1, path)))
            continue
        try:
            yield read_endpoint_file(path, file.read_text(encoding="utf-8"))
        except Fault as fault:
            faults.append(fault)
        except (OSError, UnicodeDecodeError) as problem:
            faults.append(BadEndpointFile(f"The file cannot be read: {problem}.", span=Span(1, 1, path)))


def _merged_endpoints(layers: Layers, faults: list[Fault]) -> list[Endpoint]:
    """Merge the layers: a later endpoint replaces an earlier one of its name; names and ids are unique."""
    own = {one.name for one in layers.own.endpoints}
    managed = [one for one in layers.managed.endpoints if one.name not in own]
    later = own | {one.name for one in managed}
    shipped = [one for one in layers.shipped.endpoints if one.name not in later]
    merged: list[Endpoint] = []
    for endpoint in [*shipped, *managed, *layers.own.endpoints]:
        for key, twin in (("name", _with(merged, "name", endpoint)), ("id", _with(merged, "id", endpoint))):
            if twin is not None:
                problem = f"The {key} {getattr(endpoint, key)} is also that of {twin.file}."
                faults.append(BadEndpointFile(problem, span=Span(1, 1, endpoint.file)))
                break
        else:
            merged.append(endpoint)
    return merged


def _over(streams: Sequence[Stream], endpoint: Endpoint) -> Endpoint:
    """Return the endpoint, told of all streams where its table may be made of them: other streams make it another endpoint."""
    if endpoint.dialect is Dialect.BIGQUERY:
        return endpoint
    places = tuple(StreamPlace(stream.name, stream.project_at) for stream in streams)
    revision = sha256(repr((endpoint.revision, places)).encode()).hexdigest()
    return msgspec.structs.replace(endpoint, streams=places, revision=revision)


def _with(endpoints: Sequence[Endpoint], key: str, sought: Endpoint) -> Endpoint | None:
    return next((one for one in endpoints if getattr(one, key) == getattr(sought, key)), None)


def _stream_layers(sources: Sources) -> list[tuple[Stream, ...]]:
    managed = _managed_streams(sources.managed)
    return [
        _shipped_streams() if sources.shipped else (),
        *(_own_streams(file) if file is not None else () for file in (managed, sources.streams)),
    ]


def _merged_streams(layers: Layers) -> tuple[Stream, ...]:
    by_name = {stream.name: stream for stream in layers.shipped.streams}
    for layer in (layers.managed, layers.own):
        by_name |= {stream.name: _held_as(by_name.get(stream.name), stream) for stream in layer.streams}
    return _distinct(tuple(by_name.values()))


def _managed_streams(folder: Path | None) -> Path | None:
    file = ManagedFiles(folder).streams_file if folder is not None else None
    return file if file is not None and file.exists() else None


def _distinct(streams: tuple[Stream, ...]) -> tuple[Stream, ...]:
    """Return the streams; raise BadStreamFile for equal ids, and for names that differ only in case."""
    ids: dict[UUID, str] = {}
    names: dict[str, str] = {}
    for stream in streams:
        twin = names.setdefault(stream.name.casefold(), stream.name)
        if twin != stream.name:
            raise BadStreamFile(f"The streams {twin} and {stream.name} differ only in small and capital letters.")
        if stream.id in ids:
            raise BadStreamFile(f"The id {stream.id} of {stream.name} is also that of {ids[stream.id]}.")
        ids[stream.id] = stream.name
    return streams


def _held_as(shipped: Stream | None, own: Stream) -> Stream:
    """Keep the shipped stream's `project`, on which the shipped endpoints rely, unless the operator sets one."""
    return msgspec.structs.replace(own, project_at=own.project_at or shipped.project_at) if shipped else own


def _shipped_streams() -> tuple[Stream, ...]:
    file = resources.files("cordwood") / "endpoints" / "streams.toml"
    return read_stream_file("cordwood/endpoints/streams.toml", file.read_text(encoding="utf-8"))


def _own_streams(file: Path) -> tuple[Stream, ...]:
    try:
        return read_stream_file(str(file), file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise BadStreamFile(f"The streams file {file} cannot be read: {problem}.") from problem
