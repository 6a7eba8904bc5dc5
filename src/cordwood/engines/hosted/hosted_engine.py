"""The engine's interface in the serving process; most methods send a request to the engine's process."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import cast

import msgspec

from cordwood.engines.engine import (
    AnswerLimits,
    BackupFile,
    BatchAppendResult,
    Cancellation,
    QueryRun,
    QueryRunRequest,
    QueryRunStats,
    StreamStats,
)
from cordwood.engines.hosted.link import EngineCall
from cordwood.engines.hosted.messages import (
    AppendReply,
    FrameKind,
    StreamCounts,
    StreamState,
    decode_rows,
    encode_rows,
    pack_append_request,
    pack_object,
    unpack_object,
)
from cordwood.engines.hosted.mirror import StateMirror
from cordwood.engines.hosted.request_dispatcher import RequestDispatcher
from cordwood.engines.hosted.supervisor import EngineProcessSupervisor, LaunchOptions
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import EngineFailed
from cordwood.model.datatype import Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import EventShape, ReceivedEventBatch
from cordwood.observe.observation import RecordObservation
from cordwood.processes.fork_server import ForkServer
from cordwood.sql.stages import BoundStatement, Target

_MAX_CLOSE_SECONDS = 30.0


class EngineDialect(msgspec.Struct, frozen=True):
    """The properties of an engine that are known without a request to its process."""

    compile_target: Target
    stored_events_sql: Callable[[str], str]


class HostedEngine:
    """An engine in a process of its own.

    The constructor raises an error if the first process cannot open the engine. If the process is replaced later, calls
    wait until the new process has opened the engine.
    """

    def __init__(
        self, fork_server: ForkServer, plan: LaunchOptions, dialect: EngineDialect, note: RecordObservation
    ) -> None:
        self.compile_target = dialect.compile_target
        self._stored_events_sql = dialect.stored_events_sql
        self._mirror = StateMirror()
        self._request_dispatcher = RequestDispatcher(note)
        self._supervisor = EngineProcessSupervisor(
            self._request_dispatcher, fork_server, plan, self._mirror.update_states
        )
        self._kill_timer: threading.Timer | None = None
        try:
            self._supervisor.start()
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """Return the process ids of the fork server and of the engine's process, for measuring their memory."""
        return self._supervisor.pids()

    def create_stream_tables(self, streams: Sequence[Stream]) -> None:
        states = self._call_engine("create_stream_tables", list(streams))
        self._request_dispatcher.add_streams(streams)
        self._mirror.update_states(cast(Mapping[str, StreamState], states))

    def check_streams(self, streams: Sequence[Stream]) -> None:
        self._call_engine("check_streams", list(streams))

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        """Append the batches.

        If the request has to be sent a second time, events that the first attempt stored count as accepted.
        """
        acknowledged = self._mirror.next_event_numbers()
        call = EngineCall(
            FrameKind.APPEND, lambda is_repeated: pack_append_request(batches, acknowledged if is_repeated else None)
        )
        result = cast(AppendReply, self._request_dispatcher.run_call(call))
        self._mirror.apply_append(batches, result.batch_results, result.counts)
        return result.batch_results

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        return decode_rows(self.run_query(QueryRunRequest(question, limits, encode_rows), cancel))

    def run_query(self, request: QueryRunRequest, cancel: Cancellation) -> QueryRun:
        # Send the statement without its shape lookups, which are not needed to run it.
        statement = msgspec.structs.replace(request.bound_statement.statement, shape_lookups={})
        question = msgspec.structs.replace(request.bound_statement, statement=statement)
        payload = pack_object(msgspec.structs.replace(request, bound_statement=question))
        call = EngineCall(
            FrameKind.RUN_QUERY,
            lambda _: payload,
            seconds=request.limits.timeout_seconds,
            is_buffered=request.max_bytes is not None,
        )
        cancel.on_cancel(lambda: self._request_dispatcher.cancel_call(call))
        cancel.set_progress_reader(lambda: None if call.has_ended else call.progress)
        self._request_dispatcher.start_call(call)
        return _HostedQueryRun(self._request_dispatcher, call)

    def stored_events_sql(self, stream: str) -> str:
        return self._stored_events_sql(stream)

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return self._mirror.shapes_by_stream()

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return self._mirror.project_shapes_by_stream()

    def stream_stats(self) -> Mapping[str, StreamStats]:
        return self._mirror.stream_stats()

    def newest_receipt_us(self) -> int | None:
        return self._mirror.newest_receipt_us()

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        return cast(Mapping[str, int], self._call_engine("stored_bytes_by_stream"))

    def delete_expired_events(self, now_us: int) -> int:
        deleted, counts = cast(tuple[int, Mapping[str, StreamCounts]], self._call_engine("sweep", now_us))
        self._mirror.update_counts(counts)
        return deleted

    @contextmanager
    def open_backup_snapshot(self) -> Iterator[Sequence[BackupFile]]:
        call = EngineCall(FrameKind.SNAPSHOT, lambda _: b"", is_buffered=False)
        self._request_dispatcher.start_call(call)
        with closing(_HostedQueryRun(self._request_dispatcher, call).answer_chunks()) as chunks:
            yield _SnapshotFiles(chunks).files

    def regex_error(self, pattern: str) -> str | None:
        return cast("str | None", self._call_engine("regex_error", pattern))

    def kill_after(self, seconds: float) -> None:
        """Kill the engine's process after `seconds`, so that calls which are still running then fail."""
        self._kill_timer = threading.Timer(seconds, self._kill)
        self._kill_timer.daemon = True
        self._kill_timer.start()

    def close(self) -> None:
        link = self._request_dispatcher.link
        if link is not None and not self._request_dispatcher.is_closed:
            call = EngineCall(FrameKind.CALL_METHOD, lambda _: pack_object(("close", ())))
            self._request_dispatcher.start_call(call)
            call.wait(_MAX_CLOSE_SECONDS)
        self._kill()
        self._supervisor.stop()
        if self._kill_timer is not None:
            self._kill_timer.cancel()

    def _kill(self) -> None:
        link = self._request_dispatcher.close()
        if link is not None:
            link.kill()

    def _call_engine(self, name: str, *arguments: object) -> object:
        return self._request_dispatcher.run_call(
            EngineCall(FrameKind.CALL_METHOD, lambda _: pack_object((name, arguments)))
        )


class _HostedQueryRun:
    """An answer that arrives from the engine's process."""

    def __init__(self, dispatcher: RequestDispatcher, call: EngineCall) -> None:
        self._request_dispatcher = dispatcher
        self._engine_call = call
        self._stats: QueryRunStats | None = None

    def answer_chunks(self) -> Generator[bytes, None, None]:
        """Yield the chunks of the answer.

        If the iterator is closed early, closing it waits until the engine has stopped the query or its process has
        ended. Therefore, the query keeps its admission slot until it has really ended.
        """
        call = self._engine_call
        try:
            self._request_dispatcher.wait_for_call(call)
            while (chunk := call.next_chunk()) is not None:
                if not call.is_buffered:
                    self._request_dispatcher.grant_credit(call, chunk)
                yield chunk
                self._request_dispatcher.wait_for_call(call)
            if call.is_query:
                self._stats, last_chunk = cast(tuple[QueryRunStats, bytes], call.result())
                if last_chunk:
                    yield last_chunk
        finally:
            if not call.has_ended:
                self._request_dispatcher.cancel_call(call)
                while not call.has_ended:
                    self._request_dispatcher.wait_for_call(call)
                    _discard_chunk(call)

    def stats(self) -> QueryRunStats:
        if self._stats is None:
            raise EngineFailed("The answer is not at its end.")
        return self._stats


def _discard_chunk(call: EngineCall) -> None:
    """Discard a chunk of a cancelled call, so that the next wait for its end does not return because of this chunk."""
    if not call.has_ended:
        call.next_chunk()


class _SnapshotFiles:
    """The files of a backup, whose contents arrive from the engine's process one file after the other."""

    def __init__(self, chunks: Generator[bytes, None, None]) -> None:
        self._chunks = chunks
        self._buffer = memoryview(b"")
        self._next_file_index = 0
        names_and_sizes = cast(list[tuple[str, int]], unpack_object(next(chunks)))
        self.files = [
            BackupFile(name, size, self._reader_of_file(position, size))
            for position, (name, size) in enumerate(names_and_sizes)
        ]

    def _reader_of_file(self, position: int, size: int) -> Callable[[], Iterator[bytes]]:
        def read() -> Iterator[bytes]:
            if position != self._next_file_index:
                raise EngineFailed("Files that are held are read once, in their order.")
            self._next_file_index += 1
            remaining = size
            while remaining:
                if not self._buffer:
                    self._buffer = memoryview(next(self._chunks))
                part = self._buffer[:remaining]
                self._buffer = self._buffer[len(part) :]
                remaining -= len(part)
                yield bytes(part)

        return read
