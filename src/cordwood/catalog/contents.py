"""Where endpoint and stream files are, and what they state."""

from pathlib import Path

import msgspec

from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream


class Sources(msgspec.Struct, frozen=True):
    """Where the files are: those that ship, those that the service writes in its data folder, and an operator's own."""

    endpoints: Path | None = None
    streams: Path | None = None
    managed: Path | None = None
    shipped: bool = True


class Contents(msgspec.Struct, frozen=True):
    """What the files state."""

    endpoints: tuple[Endpoint, ...]
    streams: tuple[Stream, ...]
