"""Whether requests are taken: not yet while starting, no more while draining."""

from enum import StrEnum

import msgspec

from cordwood.access import Access
from cordwood.catalog.catalog import Catalog, StreamMaker
from cordwood.ingest.accept import Intake
from cordwood.serve.answer import Answers
from cordwood.serve.backup import Backups


class Rooms(msgspec.Struct, frozen=True):
    """What the door hands to HTTP: the two journeys, who may take them, and what is served."""

    answers: Answers
    intake: Intake
    access: Access
    catalog: Catalog
    backups: Backups
    maker: StreamMaker | None = None


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Standing:
    """Starting until opened with its rooms, draining from the moment the process is asked to stop.

    Between the two, requests are better sent elsewhere while there is a reason: `set_unready` gives one and takes it
    back, for example while the engine is replaced. Safe from any thread.
    """

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.rooms: Rooms | None = None
        self._unready: dict[str, str] = {}

    def open(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.phase = Phase.READY

    def drain(self) -> None:
        self.phase = Phase.DRAINING

    def set_unready(self, part: str, reason: str | None) -> None:
        """Say why a part (`engine`) cannot answer now; None when it can again."""
        if reason is None:
            self._unready.pop(part, None)
        else:
            self._unready[part] = reason

    def unready_reasons(self) -> list[str]:
        """Why queries are not answered now, though the process works."""
        found = [*self._unready.copy().values()]
        if self.rooms is not None and (starved := self.rooms.answers.starved_seconds):
            found.append(f"No query has got a place for {starved:.0f} s: queries that do not end hold all of them.")
        return found

    def degraded_reasons(self) -> list[str]:
        """What does not work while queries are answered."""
        fault = self.rooms.intake.fault if self.rooms is not None else None
        return [] if fault is None else [f"Events are not stored: {fault}"]
