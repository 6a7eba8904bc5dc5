"""The interfaces and data types of the catalog: endpoints, streams and alerts, their files, and changes to them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from cordwood.model.definitions import Alert, Endpoint, Stream

T_co = TypeVar("T_co", covariant=True)
# The fields of an endpoint or a stream in JSON.
JsonFields = Mapping[str, object]
# An endpoint or a stream as it is sent over HTTP: JSON fields, or the text of a definition file.
SentDefinition = JsonFields | str


class CatalogSources(msgspec.Struct, frozen=True):
    """The places of definition files: the operator's files, the files that HTTP requests change, and shipped files.

    `managed_folder` is the folder of the files that the service itself writes when a definition is changed over HTTP.
    """

    endpoints_folder: Path | None = None
    streams_file: Path | None = None
    managed_folder: Path | None = None
    includes_shipped: bool = True


class DefinitionOrigin(StrEnum):
    """The origin of an endpoint or a stream. Only those with the origin `managed` can be changed over HTTP."""

    SHIPPED = "shipped"
    MANAGED = "managed"
    FILE = "file"


class CatalogLayer(msgspec.Struct, frozen=True):
    """The endpoints, the streams and the alert files of one origin."""

    endpoints: tuple[Endpoint, ...] = ()
    streams: tuple[Stream, ...] = ()
    alerts: tuple[Alert, ...] = ()


class CatalogLayers(msgspec.Struct, frozen=True):
    """All definitions, separated by origin. A definition replaces those of the same name in earlier layers."""

    shipped: CatalogLayer = CatalogLayer()
    managed: CatalogLayer = CatalogLayer()
    operator_files: CatalogLayer = CatalogLayer()

    def endpoint_origins(self) -> dict[str, DefinitionOrigin]:
        """Map the name of each endpoint to its origin, which is that of the last layer that defines the endpoint."""
        return {endpoint.name: origin for origin, layer in self._layers_with_origins() for endpoint in layer.endpoints}

    def stream_origins(self) -> dict[str, DefinitionOrigin]:
        """Map the name of each stream to its origin, which is that of the last layer that defines the stream."""
        return {stream.name: origin for origin, layer in self._layers_with_origins() for stream in layer.streams}

    def _layers_with_origins(self) -> tuple[tuple[DefinitionOrigin, CatalogLayer], ...]:
        return (
            (DefinitionOrigin.SHIPPED, self.shipped),
            (DefinitionOrigin.MANAGED, self.managed),
            (DefinitionOrigin.FILE, self.operator_files),
        )


class CatalogContents(msgspec.Struct, frozen=True):
    """The endpoints, streams and alerts that are in effect, and the layers from which they were merged."""

    endpoints: tuple[Endpoint, ...]
    streams: tuple[Stream, ...]
    layers: CatalogLayers = CatalogLayers()
    alerts: tuple[Alert, ...] = ()

    def find_endpoint_that_includes(self, name: str) -> Endpoint | None:
        """Return an endpoint whose query reads the endpoint `name`; None if no query does.

        If a stream with this name were created, the query would read the stream instead of the endpoint.
        """
        return next(
            (
                endpoint
                for endpoint in self.endpoints
                if any(included.name == name for included in endpoint.included_endpoints)
            ),
            None,
        )


class Catalog(Protocol):
    def endpoint(self, name_or_id: str) -> Endpoint | None:
        """Return the endpoint with this name or UUID; None if there is none.

        If a reload finds a file with errors, the earlier definitions remain in effect.
        """

    def endpoints(self) -> Sequence[Endpoint]:
        """Return all endpoints, sorted by name."""

    def stream(self, name_or_id: str) -> Stream | None:
        """Return the stream with this name or UUID; None if there is none."""

    def streams(self) -> Sequence[Stream]:
        """Return all streams, sorted by name."""

    def alerts(self) -> Sequence[Alert]:
        """Return all alerts, sorted by name."""


class ChangeContext(msgspec.Struct, frozen=True):
    """The key with which a change is made, and the revisions of the definition that the change expects.

    The expected revisions come from the header If-Match; None stands for any revision.
    """

    key_id: str
    expected_revisions: frozenset[str] | None = None


class DefinitionSource(msgspec.Struct, Generic[T_co], frozen=True):
    """An endpoint or a stream, with its origin and the text that defines it."""

    definition: T_co
    origin: DefinitionOrigin
    text: str


class DefinitionVersion(msgspec.Struct, frozen=True):
    """A stored version of a definition. `text` is the definition's whole text; None if this version is a deletion."""

    number: int
    at: float
    # The id of the key with which the change was made; it is empty if the file was edited by hand.
    author_key_id: str = msgspec.field(name="key")
    text: str | None


class DefinitionEditor(Protocol[T_co]):
    """An editor of endpoints or of streams; it raises ReadOnlyDefinition for one that cannot be changed over HTTP.

    When a method returns, its change is durable and in effect; if it raises, nothing has changed. With `is_dry`, a
    method makes all checks and returns the same result, but changes nothing.
    """

    def origins_by_name(self) -> Mapping[str, DefinitionOrigin]:
        """Return the origin of each definition, by the definition's name."""

    def find(self, address: str) -> DefinitionSource[T_co]:
        """Return the definition with this name or UUID."""

    def create(self, sent: SentDefinition, author: ChangeContext, *, is_dry: bool = False) -> DefinitionSource[T_co]:
        """Create a definition; raise BadDefinition for an invalid field."""

    def change(
        self, address: str, sent: SentDefinition, author: ChangeContext, *, is_dry: bool = False
    ) -> DefinitionSource[T_co]:
        """Change a definition, which is addressed by name or UUID.

        If JSON fields are sent, only these fields change. A sent text replaces the whole text of the definition.
        """

    def delete(self, address: str, author: ChangeContext) -> None:
        """Delete a definition; its stored versions are kept."""

    def versions(self, address: str) -> Sequence[DefinitionVersion]:
        """Return the stored versions of a definition, oldest first, even if the definition has been deleted."""

    def version(self, address: str, number: int) -> tuple[DefinitionVersion, T_co | None]:
        """Return a stored version and its parsed definition; raise UnknownDefinitionVersion if it is not stored."""

    def restore(self, address: str, number: int, author: ChangeContext) -> DefinitionSource[T_co]:
        """Make an earlier version the current one, after the same checks as for a new definition."""


class StreamCreator(Protocol):
    """The interface for creating a stream when the first events are sent to an unknown name."""

    def proposed_stream(self, name: str) -> Stream:
        """Return the stream that would be created for a name; raise UnknownStream if no stream may have this name."""

    def create_stream(self, name: str, key_id: str | None) -> Stream:
        """Create the stream durably, or return the existing one; raise UnknownStream if there are too many streams.

        The number of streams is limited for all keys together and for each key. If `key_id` is None, only the first
        limit applies.
        """
