"""The catalog interface: endpoints and streams, by name or UUID; the locations of their files, and their contents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream


class Sources(msgspec.Struct, frozen=True):
    """The locations of files: shipped ones, those that the service writes in its data folder, and the operator's."""

    endpoints: Path | None = None
    streams: Path | None = None
    managed: Path | None = None
    shipped: bool = True


class Contents(msgspec.Struct, frozen=True):
    """The endpoints and streams of all files."""

    endpoints: tuple[Endpoint, ...]
    streams: tuple[Stream, ...]


class Catalog(Protocol):
    def endpoint(self, name_or_id: str) -> Endpoint | None:
        """Return the endpoint of the last valid contents; a file with errors never changes it."""

    def endpoints(self) -> Sequence[Endpoint]:
        """Return all endpoints by name."""

    def stream(self, name_or_id: str) -> Stream | None:
        """Return the stream of that name or UUID."""

    def streams(self) -> Sequence[Stream]:
        """Return all streams by name."""


class StreamMaker(Protocol):
    """Creates streams on demand for unknown names."""

    def proposed(self, name: str) -> Stream:
        """Return the stream that would be created; raise UnknownStream if none may be."""

    def make_stream(self, name: str) -> Stream:
        """Create the stream durably, or return the existing one; raise UnknownStream if there are too many."""
