"""Operation while the ClickHouse server is unavailable: buffer events, avoid waiting, and detect its return.

Buffered batches are stored on disk. They are sent in order once the server is available again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from cordwood.engines.clickhouse.storage import Storage
from cordwood.engines.engine import BatchAppendResult
from cordwood.errors import BacklogFull, EngineUnreachable, Fault, QueryOutOfTime
from cordwood.file_listing import list_files
from cordwood.folder import unusable_path_fault, write_durably
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind
from cordwood.observe.observation import ReportOperatorMessage

# The faults after which the server counts as unavailable: no connection, or no response in time.
UNAVAILABLE_FAULTS: Final = (EngineUnreachable, QueryOutOfTime)

_PENDING_FILE_SUFFIX: Final = ".batch"

_PathKinds = tuple[tuple[str, ...], frozenset[ValueKind]]


class _PendingBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch of events in the form in which it is buffered on disk."""

    stream: str
    received_us: int
    events: list[Event]
    learnt_kinds: list[_PathKinds] = []
    by_project: list[tuple[str, list[_PathKinds]]] = []


_pending_batches_decoder = msgspec.msgpack.Decoder(list[_PendingBatch])


class PendingBatchQueue:
    """A queue of batches on disk; its total size is limited, and each call of `add` writes one numbered file."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._drain_lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for incomplete in list_files(folder, ".new"):
                incomplete.unlink()
            files = self._queued_files()
            self._queued_bytes = sum(file.stat().st_size for file in files)
        except OSError as problem:
            # A queue that is wrongly taken for empty would lose events: new files would replace those in it.
            raise unusable_path_fault(folder, problem) from problem
        self._next_file_number = int(files[-1].stem) + 1 if files else 1

    def __bool__(self) -> bool:
        return self._queued_bytes > 0

    def add(self, batches: Sequence[ReceivedEventBatch]) -> None:
        """Write the batches to disk, synced before the method returns; raise BacklogFull if the queue is full."""
        body = msgspec.msgpack.encode([_to_pending_batch(batch) for batch in batches])
        with self._lock:
            if self._queued_bytes + len(body) > self._max_bytes:
                raise BacklogFull(
                    "ClickHouse is unreachable, and the buffer for events is full until it is reachable again.",
                    retry_after=30,
                )
            write_durably(self._folder / f"{self._next_file_number:012d}{_PENDING_FILE_SUFFIX}", body)
            self._next_file_number += 1
            self._queued_bytes += len(body)

    def drain(self, store: Callable[[Sequence[ReceivedEventBatch]], object]) -> None:
        """Send all queued batches to `store`, oldest first; stop with the fault if `store` raises one.

        A file is removed only after its events are stored. If a file is sent twice, for example after a crash, `store`
        recognises its events as duplicates by their ids. Other threads may call `add` during a drain. If another thread
        is already draining the queue, return at once.
        """
        if not self._drain_lock.acquire(blocking=False):
            return
        try:
            while files := self._queued_files():
                self._send_file(files[0], store)
        finally:
            self._drain_lock.release()

    def _send_file(self, file: Path, store: Callable[[Sequence[ReceivedEventBatch]], object]) -> None:
        body = file.read_bytes()
        store([_from_pending_batch(pending) for pending in _pending_batches_decoder.decode(body)])
        with self._lock:
            self._queued_bytes -= len(body)
            file.unlink()

    def _queued_files(self) -> list[Path]:
        return list_files(self._folder, _PENDING_FILE_SUFFIX)


def _to_pending_batch(batch: ReceivedEventBatch) -> _PendingBatch:
    by_project = [(project, list(kinds.items())) for project, kinds in batch.by_project.items()]
    return _PendingBatch(batch.stream, batch.received_us, list(batch.events), list(batch.learnt.items()), by_project)


def _from_pending_batch(pending: _PendingBatch) -> ReceivedEventBatch:
    by_project = {project: dict(kinds) for project, kinds in pending.by_project}
    return ReceivedEventBatch(
        pending.stream, pending.events, pending.received_us, dict(pending.learnt_kinds), by_project
    )


class RetryIntervals(msgspec.Struct, frozen=True):
    """The pauses before the next attempt: after the server was unreachable, and after it did not respond in time."""

    unreachable_seconds: float
    unresponsive_seconds: float


class BufferedAppender:
    """Appends batches in order, to the server or, while the server is unavailable, to the queue on disk."""

    def __init__(
        self,
        storage: Storage,
        pending: PendingBatchQueue | None,
        intervals: RetryIntervals,
        report: ReportOperatorMessage,
    ) -> None:
        self._storage = storage
        self._pending_queue = pending
        self._retry_intervals = intervals
        self._report_message = report
        self._is_server_unavailable = False
        self._retry_at = 0.0
        self._close_requested = threading.Event()
        self._retry_thread: threading.Thread | None = None

    def start_retry_thread(self) -> None:
        """Start the thread that reconnects to the server and reads the shapes that other processes have learnt."""
        if self._retry_thread is None:
            self._retry_thread = threading.Thread(target=self._retry_until_closed, name="clickhouse", daemon=True)
            self._retry_thread.start()

    def close(self) -> None:
        self._close_requested.set()
        if self._retry_thread is not None:
            self._retry_thread.join(timeout=1.0)

    @property
    def has_pending_batches(self) -> bool:
        """Return whether the buffer holds events that were accepted but have not been sent to the server yet."""
        return bool(self._pending_queue)

    @property
    def is_server_unavailable(self) -> bool:
        """Return whether the retry interval is still running; during it, requests that can wait are not sent."""
        return time.monotonic() < self._retry_at

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        """Append the batches, or buffer them on disk while the server is unavailable.

        Buffered events count as accepted. If the engine has no buffer, raise the server's fault instead.
        """
        if not self.send_pending_batches():
            return self._buffer_batches(batches)
        try:
            return self._storage.append(batches)
        except UNAVAILABLE_FAULTS as fault:
            self.record_server_unavailable(fault)
            if self._pending_queue is None:
                raise
            return self._buffer_batches(batches)

    def send_pending_batches(self) -> bool:
        """Send the buffered batches, but not during the retry interval; return whether the buffer is empty now."""
        if self._pending_queue and not self.is_server_unavailable:
            try:
                self._pending_queue.drain(self._storage.append)
            except UNAVAILABLE_FAULTS as fault:
                self.record_server_unavailable(fault)
        return not self._pending_queue

    def record_server_unavailable(self, fault: Fault) -> None:
        """Record that the server is unavailable, and start the retry interval; report only the first such fault."""
        is_connected = isinstance(fault, QueryOutOfTime)
        self._retry_at = time.monotonic() + (
            self._retry_intervals.unresponsive_seconds if is_connected else self._retry_intervals.unreachable_seconds
        )
        if not self._is_server_unavailable:
            self._report_message(
                f"{fault.message}{' Events are kept on disk until it can be.' if self._pending_queue is not None else ''}"
            )
        self._is_server_unavailable = True

    def _record_server_available(self) -> None:
        self._retry_at = 0.0
        if self.send_pending_batches() and self._is_server_unavailable:
            self._is_server_unavailable = False
            self._report_message("ClickHouse is reachable again, and the buffered events are stored.")

    def _buffer_batches(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        if self._pending_queue is not None:
            self._pending_queue.add(batches)
        return [BatchAppendResult(len(batch.events), 0) for batch in batches]

    def _retry_until_closed(self) -> None:
        while not self._close_requested.wait(self._retry_intervals.unreachable_seconds):
            try:
                self._storage.run_maintenance()
            except UNAVAILABLE_FAULTS as fault:
                self.record_server_unavailable(fault)
            except Fault as fault:
                self._report_message(fault.message)
            else:
                self._record_server_available()
