"""The port through which the journeys find endpoints and streams, by name or by UUID."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream


class Catalog(Protocol):
    def endpoint(self, name_or_id: str) -> Endpoint | None:
        """The endpoint as last loaded whole; a broken change never shows here."""

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them, by name."""

    def stream(self, name_or_id: str) -> Stream | None:
        """The stream of that name or UUID."""

    def streams(self) -> Sequence[Stream]:
        """All of them, by name."""


class StreamMaker(Protocol):
    """Makes streams of names that events are sent to."""

    def proposed(self, name: str) -> Stream:
        """Return the stream that would be made of a name; UnknownStream where none would be."""

    def make_stream(self, name: str) -> Stream:
        """Make it durably, or return the one of that name; UnknownStream where there is no room for more."""
