"""The alerts of the service as one object, which opens its store and starts evaluating with the first alert."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from cordwood.alerts.evaluator import EvaluationOptions, Evaluator, Queries
from cordwood.alerts.notification import Notification
from cordwood.alerts.sender import Sender, SendLimits
from cordwood.alerts.states import Phase
from cordwood.alerts.store import AlertStore
from cordwood.catalog.catalog import Catalog
from cordwood.errors import Fault
from cordwood.observe.observation import Note, Noted
from cordwood.serve.query_request import Format

_POLL_SECONDS: Final = 1.0
# The maximum number of threads that wait for receivers.
_MAX_SENDING_THREADS: Final = 32


class TargetFacts(msgspec.Struct, frozen=True):
    """A target without its secrets.

    `repeat_seconds` is after how long a firing state has to be sent again. `max_changes` is the maximum number of
    changes in one notification.
    """

    name: str
    kind: str
    host: str
    repeat_seconds: float | None
    max_changes: int
    deliver: Callable[[Notification], None]


class AlertOptions(msgspec.Struct, frozen=True):
    """The file of the store, the targets, the limits of sending, and the address of the service in messages."""

    file: Path
    targets: Mapping[str, TargetFacts]
    limits: SendLimits
    external_url: str
    rows_format: Format


class AlertParts(msgspec.Struct, frozen=True):
    """The objects that exist once there are alerts."""

    store: AlertStore
    evaluator: Evaluator
    sender: Sender


class Alerts:
    """The alerts of the service. Without alerts, now or earlier, nothing is opened."""

    def __init__(
        self,
        catalog: Catalog,
        queries: Queries,
        options: AlertOptions,
        clock_us: Callable[[], int],
        note: Note,
    ) -> None:
        self.catalog = catalog
        self.options = options
        self.clock_us = clock_us
        self._queries = queries
        self._note = note
        self._parts: AlertParts | None = None
        self._last_error = ""
        # A lock, because a backup opens the store in another thread.
        self._opening = threading.Lock()
        # A separate thread pool, because receivers may take long to answer.
        self._sending_threads = ThreadPoolExecutor(
            min(len(options.targets) + 1, _MAX_SENDING_THREADS), thread_name_prefix="alerts-send"
        )

    @property
    def parts(self) -> AlertParts | None:
        return self._parts

    async def run(self) -> None:
        """Evaluate and send until cancelled, beginning with the first alert."""
        while (parts := self._opened_if_needed()) is None:  # noqa: ASYNC110 - a reload of files has no event
            await asyncio.sleep(_POLL_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(parts.evaluator.run())
            tasks.create_task(parts.sender.run())

    def _opened_if_needed(self) -> AlertParts | None:
        try:
            return self.open() if self.is_needed() else None
        except Fault as fault:
            # If a reload added the first alert, the service continues without alerts and logs the error once.
            if fault.in_one_line() != self._last_error:
                self._last_error = fault.in_one_line()
                self._note(Noted(message=self._last_error, level="error"))
            return None

    def is_needed(self) -> bool:
        """Return whether there are alerts, or states of earlier alerts that have to be ended."""
        return self._parts is not None or bool(self.catalog.alerts()) or self.options.file.exists()

    def open(self) -> AlertParts:
        """Open the store; raise DataFolderUnusable if it is damaged."""
        with self._opening:
            if self._parts is None:
                self._parts = self._create_parts()
            return self._parts

    def _create_parts(self) -> AlertParts:
        options = self.options
        store = AlertStore(options.file)
        receivers = {
            name: (target.max_changes, partial(self.deliver, target)) for name, target in options.targets.items()
        }
        sender = Sender(store, receivers, options.limits, self.clock_us, self._note, options.external_url)
        repeats = {
            name: target.repeat_seconds for name, target in options.targets.items() if target.repeat_seconds is not None
        }
        evaluation = EvaluationOptions(options.rows_format, sender.wake, repeats)
        evaluator = Evaluator(self.catalog, self._queries, store, self.clock_us, self._note, evaluation)
        return AlertParts(store, evaluator, sender)

    async def deliver(self, target: TargetFacts, notification: Notification) -> None:
        """Send a notification; raise DeliveryFailed if the target refuses it."""
        await asyncio.get_running_loop().run_in_executor(self._sending_threads, target.deliver, notification)

    def count(self, phase: Phase) -> int:
        """Return how many groups of all alerts are in a phase."""
        if self._parts is None:
            return 0
        store = self._parts.store
        return sum(store.count(str(alert.id), phase) for alert in self.catalog.alerts())

    def copy_database(self) -> bytes | None:
        """Return a copy of the store; None if there is none."""
        return self.open().store.copy_database() if self.is_needed() else None

    def close(self) -> None:
        self._sending_threads.shutdown()
        if self._parts is not None:
            self._parts.store.close()
