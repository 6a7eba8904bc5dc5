"""Changes at runtime: reload all files, and create streams on demand."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from cordwood.catalog.catalog import Contents
from cordwood.catalog.files import FileCatalog, with_stream
from cordwood.catalog.managed_files import ManagedFiles, toml_text
from cordwood.catalog.stream_file import read_stream_file, why_no_stream_name
from cordwood.errors import BadStreamFile, Fault, UnknownStream, did_you_mean
from cordwood.model.stream import Stream

Read = Callable[[], Contents]


class PreparesStreams(Protocol):
    """The method of an engine that creates the storage of streams."""

    def prepare(self, streams: Sequence[Stream]) -> None: ...


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
        most_new_streams: int = 0,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._files = files
        self._read = read
        self._most_new_streams = most_new_streams
        self._changing = threading.Lock()

    def reload(self) -> Contents:
        """Reload all files; leave everything unchanged if one has an error."""
        with self._changing:
            contents = self._read()
            self._serve(contents)
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
            made = len(read_stream_file(str(self._files.streams_file), text))
            if made >= self._most_new_streams:
                raise self._unknown(name, f"No more streams are made: there are {made} (ingest.new_streams)")
            try:
                contents = with_stream(self._catalog.contents, stream)
            except BadStreamFile as fault:
                raise self._unknown(name, fault.message.rstrip(".")) from fault
            self._files.write(self._files.streams_file, f"{text}{_table(name)}")
            self._serve(contents)
            return stream

    def _serve(self, contents: Contents) -> None:
        self._engine.prepare(contents.streams)
        self._catalog.replace(contents)

    def _unknown(self, name: str, problem: str | None) -> Fault:
        near = did_you_mean(name, [one.name for one in self._catalog.streams()])
        hint = f"{problem}." if problem else near or "Add it to your streams file."
        return UnknownStream(f"There is no stream {name!r}.", hint=hint)


def _table(name: str) -> str:
    return f"\n# Made for events that were sent to it.\n[[stream]]\nname = {toml_text(name)}\n"
