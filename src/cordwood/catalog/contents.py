"""Where endpoint and stream files are, and what they state."""

from dataclasses import dataclass
from pathlib import Path

from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the files are: those that ship, then an operator's own."""

    endpoints: Path | None = None
    streams: Path | None = None
    shipped: bool = True


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files state."""

    endpoints: tuple[Endpoint, ...]
    streams: tuple[Stream, ...]
