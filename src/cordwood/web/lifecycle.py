"""The lifecycle of the service as seen over HTTP: starting, ready, draining."""

import asyncio
from enum import StrEnum

import msgspec

from cordwood.access import Access
from cordwood.alerts.service import Alerts
from cordwood.catalog.catalog import Catalog, Definitions, StreamMaker
from cordwood.ingest.accept import Intake
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream
from cordwood.serve.answer import Answers
from cordwood.serve.backup_archive import Backups
from cordwood.serve.tails import Tails


class Services(msgspec.Struct, frozen=True):
    """The services that request handlers use."""

    answers: Answers
    intake: Intake
    access: Access
    catalog: Catalog
    backups: Backups
    tails: Tails
    alerts: Alerts
    stream_maker: StreamMaker | None = None
    endpoint_definitions: Definitions[Endpoint] | None = None
    stream_definitions: Definitions[Stream] | None = None
    # A lock for changes of definitions, so that waiting requests do not occupy threads of the pool.
    changing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Lifecycle:
    """The phase of the process: STARTING until `open`, READY, and DRAINING from `drain` on.

    While it is READY, `set_unready` may declare a part unavailable, for example while the engine is replaced.
    Thread-safe.
    """

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.services: Services | None = None
        self._unready: dict[str, str] = {}

    def open(self, services: Services) -> None:
        self.services = services
        self.phase = Phase.READY

    def drain(self) -> None:
        self.phase = Phase.DRAINING

    def set_unready(self, part: str, reason: str | None) -> None:
        """Set the reason why a part of the service (`engine`) is unavailable, or None once it is available again."""
        if reason is None:
            self._unready.pop(part, None)
        else:
            self._unready[part] = reason

    def unready_reasons(self) -> list[str]:
        """Return the reasons why queries cannot be answered although the process runs."""
        found = [*self._unready.copy().values()]
        if self.services is not None and (starved := self.services.answers.queue_stalled_seconds):
            found.append(f"No query has got a slot for {starved:.0f} s: queries that do not end hold all slots.")
        return found

    def degraded_reasons(self) -> list[str]:
        """Return what does not work although queries are answered."""
        fault = self.services.intake.fault if self.services is not None else None
        return [] if fault is None else [f"Events are not stored: {fault}"]
