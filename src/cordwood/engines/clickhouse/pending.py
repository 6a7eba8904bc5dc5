"""Batches that were accepted while ClickHouse was unavailable: stored on disk, and sent in order once it is back."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from cordwood.errors import Backlog
from cordwood.folder import write_durably
from cordwood.model.event import Batch, Event
from cordwood.model.shape import ValueKind

_SUFFIX: Final = ".batch"


PathKinds = tuple[tuple[str, ...], frozenset[ValueKind]]


class PendingBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch as it is stored on disk."""

    stream: str
    received_us: int
    events: list[Event]
    learnt: list[PathKinds] = []
    by_project: list[tuple[str, list[PathKinds]]] = []


_decoder = msgspec.msgpack.Decoder(list[PendingBatch])


class Pending:
    """A queue on disk, bounded in size: one numbered file for each call that could not be stored."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._drain_lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        for incomplete in folder.glob("*.new"):
            incomplete.unlink()
        files = self._files()
        self._next_number = int(files[-1].stem) + 1 if files else 1
        self._bytes = sum(file.stat().st_size for file in files)

    def __bool__(self) -> bool:
        return self._bytes > 0

    def add(self, batches: Sequence[Batch]) -> None:
        """Store the batches durably before returning."""
        body = msgspec.msgpack.encode([_to_pending(batch) for batch in batches])
        with self._lock:
            if self._bytes + len(body) > self._max_bytes:
                raise Backlog("ClickHouse is away, and no more events can be kept until it is back.", retry_after=30)
            write_durably(self._folder / f"{self._next_number:012d}{_SUFFIX}", body)
            self._next_number += 1
            self._bytes += len(body)

    def drain(self, store: Callable[[Sequence[Batch]], object]) -> None:
        """Send all stored batches, oldest first; a failure to reach ClickHouse is raised and ends the attempt.

        A file is removed only after its events are stored: those sent twice are recognised by their ids. More batches
        may be stored meanwhile.
        """
        if not self._drain_lock.acquire(blocking=False):
            return
        try:
            while files := self._files():
                self._send(files[0], store)
        finally:
            self._drain_lock.release()

    def _send(self, file: Path, store: Callable[[Sequence[Batch]], object]) -> None:
        body = file.read_bytes()
        store([_from_pending(pending) for pending in _decoder.decode(body)])
        with self._lock:
            self._bytes -= len(body)
            file.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}"))


def _to_pending(batch: Batch) -> PendingBatch:
    by_project = [(project, list(kinds.items())) for project, kinds in batch.by_project.items()]
    return PendingBatch(batch.stream, batch.received_us, list(batch.events), list(batch.learnt.items()), by_project)


def _from_pending(pending: PendingBatch) -> Batch:
    by_project = {project: dict(kinds) for project, kinds in pending.by_project}
    return Batch(pending.stream, pending.events, pending.received_us, dict(pending.learnt), by_project)
