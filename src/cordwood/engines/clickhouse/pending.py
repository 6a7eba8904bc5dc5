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


Seen = tuple[tuple[str, ...], frozenset[ValueKind]]


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A batch as it is stored on disk."""

    stream: str
    received_us: int
    events: list[Event]
    learnt: list[Seen] = []
    by_project: list[tuple[str, list[Seen]]] = []


_decoder = msgspec.msgpack.Decoder(list[Kept])


class Pending:
    """A queue on disk, bounded in size: one numbered file for each call that could not be stored."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._draining = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        for torn in folder.glob("*.new"):
            torn.unlink()
        files = self._files()
        self._next = int(files[-1].stem) + 1 if files else 1
        self._bytes = sum(file.stat().st_size for file in files)

    def __bool__(self) -> bool:
        return self._bytes > 0

    def keep(self, batches: Sequence[Batch]) -> None:
        """Store the batches durably before returning."""
        body = msgspec.msgpack.encode([_kept(batch) for batch in batches])
        with self._lock:
            if self._bytes + len(body) > self._max_bytes:
                raise Backlog("ClickHouse is away, and no more events can be kept until it is back.", retry_after=30)
            write_durably(self._folder / f"{self._next:012d}{_SUFFIX}", body)
            self._next += 1
            self._bytes += len(body)

    def drain(self, store: Callable[[Sequence[Batch]], object]) -> None:
        """Send all stored batches, oldest first; a failure to reach ClickHouse is raised and ends the attempt.

        A file is removed only after its events are stored: those sent twice are recognised by their ids. More batches
        may be stored meanwhile.
        """
        if not self._draining.acquire(blocking=False):
            return
        try:
            while files := self._files():
                self._send(files[0], store)
        finally:
            self._draining.release()

    def _send(self, file: Path, store: Callable[[Sequence[Batch]], object]) -> None:
        body = file.read_bytes()
        store([_batch(one) for one in _decoder.decode(body)])
        with self._lock:
            self._bytes -= len(body)
            file.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}"))


def _kept(batch: Batch) -> Kept:
    by_project = [(project, list(kinds.items())) for project, kinds in batch.by_project.items()]
    return Kept(batch.stream, batch.received_us, list(batch.events), list(batch.learnt.items()), by_project)


def _batch(kept: Kept) -> Batch:
    by_project = {project: dict(kinds) for project, kinds in kept.by_project}
    return Batch(kept.stream, kept.events, kept.received_us, dict(kept.learnt), by_project)
