"""Whether requests are taken: not yet while starting, no more while draining."""

from enum import StrEnum

import msgspec

from cordwood.access import Access
from cordwood.catalog.catalog import Catalog
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


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Standing:
    """Starting until opened with its rooms, draining from the moment the process is asked to stop."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.rooms: Rooms | None = None

    def open(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.phase = Phase.READY

    def drain(self) -> None:
        self.phase = Phase.DRAINING
