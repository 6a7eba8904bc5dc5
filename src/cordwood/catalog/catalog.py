"""The catalog interface: endpoints and streams, by name or UUID."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream


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
