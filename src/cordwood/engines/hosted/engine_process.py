"""The engine's process: open an engine, and answer the requests of one connection until the connection closes."""

import gc
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Any, Protocol, cast

from cordwood.engines.engine import BatchAppendResult, CancelToken, Engine, QueryProgress, QueryRunRequest
from cordwood.engines.hosted.messages import (
    FLOW_CONTROL_WINDOW_BYTES,
    MAX_FRAME_CHUNK_BYTES,
    AppendReply,
    FrameKind,
    StreamCounts,
    StreamState,
    pack_exception,
    pack_object,
    prefix_request_number,
    split_request_number,
    unpack_append_request,
    unpack_credit,
    unpack_object,
)
from cordwood.engines.hosted.mirror import kinds_by_path_of_shape
from cordwood.engines.local_run import run_query_locally
from cordwood.errors import EngineFailed, QueryCancelled, QueryFault
from cordwood.model.definitions import Stream
from cordwood.model.event import ReceivedEventBatch
from cordwood.observe.observation import RecordObservation
from cordwood.processes.frames import FrameConnection

# The maximum number of threads that process requests. It is far more than the number of queries that the serving
# process admits at once.
_MAX_REQUEST_THREADS = 256


class RestartableEngine(Engine, Protocol):
    """The interface of an engine whose process may be killed at any moment: `Engine` and three more methods."""

    def next_event_numbers(self) -> Mapping[str, int]:
        """Return the sequence number of each stream's next event; reopening the engine does not change it."""

    def retry_append(
        self, batches: Sequence[ReceivedEventBatch], acknowledged: Mapping[str, int]
    ) -> list[BatchAppendResult]:
        """Append batches that an earlier append, which was not acknowledged, may have stored already.

        `acknowledged` has, for each stream, the sequence number that follows its last acknowledged event. Stored events
        with this number or a higher one come from the earlier append. They count as accepted, and not as duplicates.
        """

    def must_restart(self) -> bool:
        """Return whether the engine must be opened again before it can answer; called after a request has failed."""


# A function that opens the engine. Its first argument is the settings; its second is called with each note for the log.
OpenEngine = Callable[[Any, RecordObservation], RestartableEngine]


def run_engine(link: socket.socket, open_engine: OpenEngine) -> None:
    """Open the engine with the settings in the first frame, answer requests until the connection closes, and exit.

    The process exits without cleaning up, because everything that the engine has acknowledged is already durable.
    """
    frames = FrameConnection(link)
    open_frame = frames.receive()
    if open_frame is None or open_frame[0] != FrameKind.OPEN:
        return

    def send_observation(observation: object) -> None:
        frames.send(FrameKind.OBSERVATION, pack_object(observation))

    try:
        engine = open_engine(unpack_object(open_frame[1]), send_observation)
    except Exception as problem:  # noqa: BLE001 - the other process raises it
        frames.send(FrameKind.OPENED, pack_exception(problem))
        return
    # Exempt the objects that exist now from garbage collection, because they live until the process ends.
    gc.freeze()
    frames.send(FrameKind.OPENED)
    _RequestLoop(engine, frames).run()
    os._exit(0)


class _OutgoingAnswer:
    """The flow control of one answer: sending a chunk waits while the reader has too many unread bytes."""

    def __init__(self, number: int, frames: FrameConnection) -> None:
        self.cancel_token = CancelToken()
        self._request_number = number
        self._frame_connection = frames
        self._send_window_changed = threading.Condition()
        self._unacknowledged_bytes = 0
        self.cancel_token.on_cancel(self._wake_sender)

    def send(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            for part in _split_chunk(chunk):
                self._wait_and_send_chunk(part)

    def send_buffered(self, chunks: Iterable[bytes]) -> bytes:
        """Send an answer without waiting for the reader, because the total size of the answer is limited.

        Return the end of the answer, which is not sent here: the caller sends it together with the message that the
        request is done.
        """
        buffer = b""
        for chunk in chunks:
            if len(buffer) + len(chunk) <= MAX_FRAME_CHUNK_BYTES:
                buffer += chunk
                continue
            # Send large chunks in parts, without copying them as a whole.
            for part in chain([buffer], _split_chunk(chunk)):
                self._frame_connection.send(FrameKind.ANSWER_CHUNK, prefix_request_number(self._request_number, part))
            buffer = b""
        return buffer

    def add_credit(self, consumed_bytes: int) -> None:
        with self._send_window_changed:
            self._unacknowledged_bytes -= consumed_bytes
            self._send_window_changed.notify_all()

    def _wait_and_send_chunk(self, chunk: bytes) -> None:
        with self._send_window_changed:
            self._send_window_changed.wait_for(
                lambda: self._unacknowledged_bytes < FLOW_CONTROL_WINDOW_BYTES or self.cancel_token.is_cancelled
            )
            if self.cancel_token.is_cancelled:
                raise QueryCancelled("The query was stopped: no client waits for its answer.")
            self._unacknowledged_bytes += len(chunk)
        self._frame_connection.send(FrameKind.ANSWER_CHUNK, prefix_request_number(self._request_number, chunk))

    def _wake_sender(self) -> None:
        with self._send_window_changed:
            self._send_window_changed.notify_all()


def _split_chunk(chunk: bytes) -> Iterator[bytes]:
    return (chunk[start : start + MAX_FRAME_CHUNK_BYTES] for start in range(0, len(chunk), MAX_FRAME_CHUNK_BYTES))


class _RequestLoop:
    """A loop that reads requests one after the other, and processes each request in a thread."""

    def __init__(self, engine: RestartableEngine, frames: FrameConnection) -> None:
        self._engine = engine
        self._frame_connection = frames
        self._threads = ThreadPoolExecutor(_MAX_REQUEST_THREADS, thread_name_prefix="engine")
        self._outgoing_answers: dict[int, _OutgoingAnswer] = {}
        self._stream_counts_lock = threading.Lock()
        self._stream_counts_version_numbers = itertools.count(1)

    def run(self) -> None:
        while (frame := self._frame_connection.receive()) is not None:
            kind, payload = frame
            if kind == FrameKind.PING:
                self._frame_connection.send(FrameKind.PONG)
            elif kind == FrameKind.ASK_PROGRESS:
                self._frame_connection.send(FrameKind.PROGRESS, pack_object(self._progress_by_number()))
            elif kind == FrameKind.CREDIT:
                number, consumed_bytes = unpack_credit(payload)
                if outgoing := self._outgoing_answers.get(number):
                    outgoing.add_credit(consumed_bytes)
            else:
                self._dispatch(kind, *split_request_number(payload))

    def _progress_by_number(self) -> Mapping[int, QueryProgress]:
        """Return the known progress of the running queries, by the numbers of their requests."""
        found = (
            (number, outgoing.cancel_token.query_progress())
            for number, outgoing in dict(self._outgoing_answers).items()
        )
        return {number: progress for number, progress in found if progress is not None}

    def _dispatch(self, kind: int, number: int, payload: memoryview) -> None:
        if kind == FrameKind.CANCEL:
            # Cancel in a thread, because the call may block until the query reacts, and this loop must not block.
            if outgoing := self._outgoing_answers.get(number):
                self._threads.submit(outgoing.cancel_token.cancel)
            return
        if kind in (FrameKind.RUN_QUERY, FrameKind.SNAPSHOT):
            self._outgoing_answers[number] = _OutgoingAnswer(number, self._frame_connection)
        handle = {
            FrameKind.CALL_METHOD: self._handle_call,
            FrameKind.APPEND: self._handle_append,
            FrameKind.RUN_QUERY: self._handle_query_run,
            FrameKind.SNAPSHOT: self._send_snapshot,
        }[FrameKind(kind)]
        self._threads.submit(self._process_request, number, handle, payload)

    def _process_request(self, number: int, handle: Callable[[int, memoryview], object], payload: memoryview) -> None:
        try:
            answer = prefix_request_number(number, pack_object(handle(number, payload)))
            kind = FrameKind.DONE
        except BaseException as exception:  # noqa: BLE001 - the other process raises it
            if isinstance(exception, EngineFailed | QueryFault) and self._engine.must_restart():
                # End the process without an answer. The serving process repeats the request on the next process.
                os._exit(1)
            answer = prefix_request_number(number, pack_exception(exception))
            kind = FrameKind.FAILED
        finally:
            self._outgoing_answers.pop(number, None)
        try:
            self._frame_connection.send(kind, answer)
        except OSError:
            os._exit(0)

    def _handle_call(self, _: int, payload: memoryview) -> object:
        name, arguments = cast(tuple[str, tuple[Any, ...]], unpack_object(payload))
        if name == "create_stream_tables":
            return self._handle_create_stream_tables(*arguments)
        if name == "sweep":
            deleted = self._engine.delete_expired_events(*arguments)
            return deleted, self._stream_counts(self._engine.stream_stats())
        return getattr(self._engine, name)(*arguments)

    def _handle_create_stream_tables(self, streams: Sequence[Stream]) -> Mapping[str, StreamState]:
        self._engine.create_stream_tables(streams)
        names = {stream.name for stream in streams}
        shapes, projects = self._engine.shapes_by_stream(), self._engine.project_shapes_by_stream()
        return {
            name: StreamState(
                kinds_by_path_of_shape(shapes[name]),
                [(path, str(kind)) for path, kind in projects[name].path_kind_pairs],
                projects[name].bit_sets_by_project(),
                counts,
            )
            for name, counts in self._stream_counts(names).items()
        }

    def _handle_append(self, _: int, payload: memoryview) -> AppendReply:
        batches, acknowledged = unpack_append_request(payload)
        if acknowledged is None:
            appended = self._engine.append(batches)
        else:
            appended = self._engine.retry_append(batches, acknowledged)
        return AppendReply(appended, self._stream_counts({batch.stream for batch in batches}))

    def _handle_query_run(self, number: int, payload: memoryview) -> object:
        outgoing = self._outgoing_answers[number]
        request = cast(QueryRunRequest, unpack_object(payload))
        run = run_query_locally(self._engine, request, outgoing.cancel_token)
        last_chunk = b""
        with closing(run.answer_chunks()) as chunks:
            if request.max_bytes is None:
                outgoing.send(chunks)
            else:
                last_chunk = outgoing.send_buffered(chunks)
        return run.stats(), last_chunk

    def _send_snapshot(self, number: int, _: memoryview) -> None:
        """Send the names and sizes of the snapshot's files, and then the content of one file after the other."""
        outgoing = self._outgoing_answers[number]
        with self._engine.open_backup_snapshot() as files:
            outgoing.send([pack_object([(file.name, file.size) for file in files])])
            for file in files:
                outgoing.send(file.read_chunks())

    def _stream_counts(self, names: Iterable[str]) -> Mapping[str, StreamCounts]:
        with self._stream_counts_lock:
            number, facts, tails = (
                next(self._stream_counts_version_numbers),
                self._engine.stream_stats(),
                self._engine.next_event_numbers(),
            )
            newest_us = self._engine.newest_receipt_us()
            return {name: StreamCounts(number, facts[name], tails[name], newest_us) for name in names if name in facts}
