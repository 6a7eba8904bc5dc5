"""The locations of endpoint and streams files, and their contents."""

from pathlib import Path

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
