"""The engine in a separate process, which may end at any time and is replaced without loss of events."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, BatchAppendResult, Cancellation, CancelToken
from cordwood.engines.hosted import memory_ceiling, supervisor
from cordwood.engines.hosted.engine_process import run_engine
from cordwood.engines.hosted.hosted_engine import HostedEngine
from cordwood.engines.hosted.link import EngineLink
from cordwood.engines.hosted.memory_ceiling import MemoryCeiling
from cordwood.engines.hosted.supervisor import EngineProcessSupervisor
from cordwood.errors import DataFolderUnusable, EngineKilledDuringQuery, EngineUnreachable, OutOfMemory, QueryKilled
from cordwood.model.datatype import Rows
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.observe.observation import EngineEnded, OperatorMessage, RecordObservation
from cordwood.processes.fork_server import ForkServer
from cordwood.sql.stages import BoundStatement
from tests.contract.conftest import open_hosted
from tests.contract.engine_asking import LIMITS, NOW_US, batch, ids, rows
from tests.machine_speed import scaled
from tests.waiting import until

MEMORY_CEILING_BYTES = 300 * 10**6
LARGE_BYTES, GROWTH_BYTES = 400 * 10**6, 10**6


def end_process(number: signal.Signals) -> None:
    """Send a fatal signal to this process, and sleep until the process ends, because another thread may handle the
    signal.
    """
    os.kill(os.getpid(), number)
    time.sleep(600)


class FragileEngine(DuckDBEngine):
    """An engine that ends its process, blocks or allocates memory if an event or a query contains a certain word."""

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        return self._end_process_once(super().append(batches), batches)

    def retry_append(
        self, batches: Sequence[ReceivedEventBatch], acknowledged: Mapping[str, int]
    ) -> list[BatchAppendResult]:
        return self._end_process_once(super().retry_append(batches, acknowledged), batches)

    def _end_process_once(
        self, appended: list[BatchAppendResult], batches: Sequence[ReceivedEventBatch]
    ) -> list[BatchAppendResult]:
        marker = self._database_file.parent / "ended"
        if any(event.id == "kept" for item in batches for event in item.events):
            self._kept = bytearray(b"x" * LARGE_BYTES)
        if any(event.id == "deadly" for item in batches for event in item.events) and not marker.exists():
            marker.touch()
            end_process(signal.SIGKILL)
        return appended

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        stop = threading.Event()
        cancel.on_cancel(stop.set)
        if "deadly" in question.statement.sql:
            end_process(signal.SIGSEGV)
        if "large" in question.statement.sql:
            allocated = bytearray(b"x" * LARGE_BYTES)
            time.sleep(600)
            del allocated
        if "patient" in question.statement.sql and not (self._database_file.parent / "waited").exists():
            (self._database_file.parent / "waited").touch()
            time.sleep(600)
        if "swelling" in question.statement.sql:
            until((self._database_file.parent / "waited").exists, 20)
            time.sleep(0.2)
            allocated = bytearray(b"x" * LARGE_BYTES)
            time.sleep(600)
            del allocated
        if "growing" in question.statement.sql:
            allocated = bytearray(b"x" * (MEMORY_CEILING_BYTES // 3))
            while not stop.wait(0.02):
                allocated += b"x" * GROWTH_BYTES
            del allocated
        if "unhurried" in question.statement.sql:
            stop.wait(2)
        if "detached" in question.statement.sql and not (self._database_file.parent / "detached").exists():
            (self._database_file.parent / "detached").touch()
            self._session.cursor().execute("DETACH store")
        if "stuck" in question.statement.sql:
            time.sleep(600)
        return super().answer(question, limits, cancel)


def open_fragile(folder: str, _: RecordObservation) -> FragileEngine:
    if folder.endswith("/"):
        (Path(folder) / "low memory").touch()
    if (Path(folder) / "unreadable").exists():
        raise DataFolderUnusable("The events cannot be read.")
    return FragileEngine(Path(folder), DuckDBTarget(), clock_us=lambda: NOW_US)


def fragile_process(link: socket.socket) -> None:
    run_engine(link, open_fragile)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer("tests.contract.test_hosted_engine:fragile_process")
    yield server
    server.close()


@pytest.fixture
def notes() -> list[object]:
    return []


@pytest.fixture
def engine(tmp_path: Path, fork_server: ForkServer, notes: list[object]) -> Iterator[HostedEngine]:
    opened = open_hosted(tmp_path / "data", fork_server, notes.append, MEMORY_CEILING_BYTES)
    yield opened
    opened.close()


def test_events_stored_before_the_process_ended_are_accepted_once(engine: HostedEngine) -> None:
    engine.append([batch(Event("old", NOW_US))])
    sent = batch(Event("old", NOW_US), Event("deadly", NOW_US), Event("a", NOW_US), Event("a", NOW_US))
    assert engine.append([sent, batch(Event("a", NOW_US), Event("b", NOW_US))]) == [
        BatchAppendResult(2, 2, (0, 3)),
        BatchAppendResult(1, 1, (0,)),
    ]
    assert ids(engine) == ["a", "b", "deadly", "old"]
    assert engine.stream_stats()["s"].events == 4
    assert engine.append([sent]) == [BatchAppendResult(0, 4, (0, 1, 2, 3))]


def test_shapes_and_versions_survive_a_replacement_of_the_process(engine: HostedEngine) -> None:
    learnt: ValueKindsByPath = {("metadata", "a"): frozenset({ValueKind.TEXT})}
    engine.append([ReceivedEventBatch("s", [Event("a", NOW_US, metadata='{"a":"b"}')], NOW_US, learnt, {"p": learnt})])
    before = engine.shapes_by_stream()["s"]
    os.kill(engine.pids()[-1], signal.SIGKILL)
    assert ids(engine) == ["a"]
    after = engine.shapes_by_stream()["s"]
    assert (after.value_kinds_by_path, after.version) == (before.value_kinds_by_path, before.version)
    assert engine.project_shapes_by_stream()["s"].shape_of_project("p", after).value_kinds_by_path == learnt


def run_in_thread(ask: Callable[[], object], outcomes: list[object]) -> threading.Thread:
    def run() -> None:
        try:
            outcomes.append(ask())
        except Exception as error:  # noqa: BLE001 - looked at below
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_query_that_ends_the_process_twice_is_blamed_and_the_others_are_retried(
    engine: HostedEngine, notes: list[object]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    outcomes: list[object] = []
    other_query_threads = [
        run_in_thread(lambda: rows(engine, "select id, 'unhurried' as d from `s`"), outcomes) for _ in range(3)
    ]
    time.sleep(0.5)
    with pytest.raises(QueryKilled, match="ended both times"):
        rows(engine, "select id, 'deadly' as d from `s`")
    for other in other_query_threads:
        other.join()
    assert outcomes == [[("a", "unhurried")]] * 3
    ends = [note for note in notes if isinstance(note, EngineEnded)]
    assert [(note.queries, note.reason) for note in ends] == [
        (0, "it ended by itself"),
        (1, "the process ended both times that it ran"),
    ]


def test_a_process_that_cannot_open_the_events_is_reported_with_its_reason(
    engine: HostedEngine, notes: list[object], tmp_path: Path
) -> None:
    """Report each failure to open the events once, and not also as a process that ended early."""
    engine.append([batch(Event("a", NOW_US))])
    marker = tmp_path / "data" / "unreadable"
    marker.touch()
    os.kill(engine.pids()[-1], signal.SIGKILL)
    until(lambda: len(messages(notes)) >= 4, 20)
    marker.unlink()
    assert set(messages(notes)[1:]) == {"The engine cannot answer: The events cannot be read."}
    assert rows(engine, "select id from `s`") == [("a",)]


def messages(notes: list[object]) -> list[str]:
    return [note.message for note in notes if isinstance(note, OperatorMessage)]


def test_after_a_crash_the_newest_queries_are_retried_first(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    outcomes: list[object] = []
    unhurried = [f"select 'unhurried' as d, {number} as n from `s`" for number in range(3)]
    threads = [run_in_thread(partial(rows, engine, sql), outcomes) for sql in unhurried]
    time.sleep(0.5)
    threads.append(run_in_thread(lambda: rows(engine, "select 'patient' as d from `s`"), outcomes))
    time.sleep(0.2)
    os.kill(engine.pids()[-1], signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert outcomes[0] == [("patient",)]
    assert sorted(map(str, outcomes[1:])) == [str([("unhurried", number)]) for number in range(3)]


def test_an_engine_that_lost_its_file_is_replaced_and_the_query_retried(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    before = engine.pids()
    assert rows(engine, "select id, 'detached' as d from `s`") == [("a", "detached")]
    assert engine.pids()[-1] != before[-1]


def test_a_query_that_does_not_stop_is_killed_and_the_next_is_answered(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    with pytest.raises(QueryKilled, match="did not stop within 1 s"):
        rows(engine, "select 'stuck' as d from `s`", AnswerLimits(10, 0.1))
    assert rows(engine, "select id from `s`") == [("a",)]


def test_an_overdue_query_beside_another_is_only_suspected(engine: HostedEngine, notes: list[object]) -> None:
    engine.append([batch(Event("a", NOW_US))])
    outcomes: list[object] = []
    other_query_thread = run_in_thread(lambda: rows(engine, "select id, 'unhurried' as d from `s`"), outcomes)
    time.sleep(0.2)
    with pytest.raises(EngineKilledDuringQuery, match="this query or one beside it did not stop"):
        rows(engine, "select 'stuck' as d from `s`", AnswerLimits(10, 0.1))
    other_query_thread.join()
    assert outcomes == [[("a", "unhurried")]]
    assert [(note.cause, note.queries) for note in notes if isinstance(note, EngineEnded)] == [("time", 0)]


def test_a_query_gets_time_to_stop_after_the_whole_machine_stood_still(
    engine: HostedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    has_slept = threading.Event()

    def sleep_once(_: EngineProcessSupervisor, link: EngineLink, __: float) -> None:
        if link.unanswered_calls and not has_slept.is_set():
            has_slept.set()
            time.sleep(1.7)

    monkeypatch.setattr(EngineProcessSupervisor, "_watch_memory", sleep_once)
    assert rows(engine, "select 'unhurried' as d from `s`", AnswerLimits(10, 0.3)) == [("unhurried",)]


@pytest.mark.parametrize(
    ("text", "fault"), [("growing", OutOfMemory), ("large", QueryKilled)], ids=["stopped", "killed"]
)
def test_a_query_that_exceeds_the_memory_ceiling_is_stopped_or_killed(
    engine: HostedEngine, text: str, fault: type[Exception]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    with pytest.raises(fault, match="passed its ceiling"):
        rows(engine, f"select '{text}' as d from `s`", LIMITS)
    assert rows(engine, "select id from `s`") == [("a",)]


def ignore_memory(*_: object) -> None:
    """Check nothing. As a replacement of `MemoryCeiling.enforce`, it simulates a supervisor without the interpreter
    lock.
    """


def test_the_watchdog_ends_a_process_that_the_supervisor_does_not_check_in_time(
    engine: HostedEngine, notes: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    monkeypatch.setattr(MemoryCeiling, "enforce", ignore_memory)
    with pytest.raises(QueryKilled, match="passed its ceiling"):
        rows(engine, "select 'large' as d from `s`", LIMITS)
    assert rows(engine, "select id from `s`") == [("a",)]
    ends = [(note.cause, note.queries) for note in notes if isinstance(note, EngineEnded)]
    assert ends == [("memory", 0), ("memory", 1)], "the first time, a flush may have taken the memory"


def test_the_watchdog_continues_after_the_fork_server_was_replaced(
    engine: HostedEngine, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    monkeypatch.setattr(MemoryCeiling, "enforce", ignore_memory)
    engine_pid, fork_server_pid = engine.pids()[-1], fork_server.pid
    assert fork_server_pid is not None
    os.kill(fork_server_pid, signal.SIGKILL)
    until(lambda: fork_server.pid not in (fork_server_pid, None), 20)
    with pytest.raises(QueryKilled, match="passed its ceiling"):
        rows(engine, "select 'large' as d from `s`", LIMITS)
    assert engine.pids()[-1] != engine_pid


def test_after_the_watchdog_ends_a_process_only_the_query_that_used_the_memory_fails(
    engine: HostedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    monkeypatch.setattr(MemoryCeiling, "enforce", ignore_memory)
    outcomes: list[object] = []
    older_query_thread = run_in_thread(lambda: rows(engine, "select 'swelling' as d from `s`", LIMITS), outcomes)
    assert rows(engine, "select 'patient' as d from `s`", LIMITS) == [("patient",)]
    older_query_thread.join()
    (error,) = outcomes
    assert isinstance(error, QueryKilled)


def test_a_query_is_blamed_if_the_process_does_not_answer_both_times(
    engine: HostedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop the process with SIGSTOP, so that the supervisor kills it because it does not answer.

    The supervisor sent the signal itself, so the exit status is not evidence of a kill from outside.
    """
    engine.append([batch(Event("a", NOW_US))])
    monkeypatch.setattr(supervisor, "_SILENCE_BEFORE_PING_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "_MAX_SILENCE_SECONDS", 1.0)
    outcomes: list[object] = []
    query_thread = run_in_thread(lambda: rows(engine, "select 'unhurried' as d from `s`"), outcomes)
    for _ in range(2):
        time.sleep(0.5)
        server, stopped = engine.pids()
        os.kill(stopped, signal.SIGSTOP)
        until(partial(is_replaced, engine, server, stopped), 20)
    query_thread.join()
    (error,) = outcomes
    assert isinstance(error, QueryKilled)


def is_replaced(engine: HostedEngine, server: int, process: int) -> bool:
    return engine.pids()[-1] not in (server, process)


def kill_and_wait(engine: HostedEngine) -> None:
    """Kill the engine's process and wait until it is replaced."""
    server, killed = engine.pids()
    os.kill(killed, signal.SIGKILL)
    until(lambda: is_replaced(engine, server, killed), 20)


def test_a_query_is_not_blamed_if_the_process_is_killed_from_outside_both_times(
    engine: HostedEngine, notes: list[object]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    outcomes: list[object] = []
    query_thread = run_in_thread(lambda: rows(engine, "select 'unhurried' as d from `s`"), outcomes)
    for _ in range(2):
        time.sleep(0.5)
        kill_and_wait(engine)
    query_thread.join()
    (error,) = outcomes
    assert isinstance(error, EngineUnreachable)
    assert [note.queries for note in notes if isinstance(note, EngineEnded)] == [0, 0]


def test_a_process_whose_memory_stays_above_its_ceiling_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, notes: list[object]
) -> None:
    monkeypatch.setattr(memory_ceiling, "_HARD_LIMIT_CEILING_RATIO", 10)
    engine: HostedEngine = request.getfixturevalue("engine")
    monkeypatch.setattr(memory_ceiling, "_MAX_ABOVE_CEILING_SECONDS", 0.1)
    engine.append([batch(Event("a", NOW_US))])
    before = engine.pids()[-1]
    engine.append([batch(Event("kept", NOW_US))])
    until(lambda: engine.pids()[-1] not in (before, engine.pids()[0]), 20)
    assert ids(engine) == ["a", "kept"]
    (end,) = [note for note in notes if isinstance(note, EngineEnded)]
    assert (end.cause, end.reason, end.queries) == ("memory", "memory stayed above its ceiling", 0)
    assert (tmp_path / "data" / "low memory").exists()


def test_a_process_that_exceeds_its_ceiling_from_the_start_is_ended_only_once(
    tmp_path: Path, fork_server: ForkServer, notes: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the engine answers although its ceiling is below the memory that it needs itself."""
    monkeypatch.setattr(MemoryCeiling, "enforce", ignore_memory)
    engine = open_hosted(tmp_path / "data", fork_server, notes.append, memory_limit_bytes=10**6)
    try:
        until(lambda: any(isinstance(note, EngineEnded) for note in notes), 20)
        engine.append([batch(Event("a", NOW_US))])
        assert ids(engine) == ["a"]
        assert len([note for note in notes if isinstance(note, EngineEnded)]) == 1
    finally:
        engine.close()


def test_a_process_killed_because_of_its_query_is_replaced_without_delay(
    engine: HostedEngine, notes: list[object]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    for number in range(5):
        with pytest.raises(QueryKilled, match="passed its ceiling"):
            rows(engine, f"select 'large' as d, {number} as n from `s`", LIMITS)
    assert rows(engine, "select id from `s`") == [("a",)]
    assert not [note for note in notes if isinstance(note, OperatorMessage)]


def test_repeated_crashes_delay_the_next_process_only_briefly(engine: HostedEngine) -> None:
    """Require a short delay after twelve processes that six queries ended.

    An exponential backoff would delay the seventh process by five seconds.
    """
    engine.append([batch(Event("a", NOW_US))])
    began_at = time.monotonic()
    for number in range(6):
        with pytest.raises(QueryKilled, match="ended both times"):
            rows(engine, f"select 'deadly' as d, {number} as n from `s`")
    assert rows(engine, "select id from `s`") == [("a",)]
    assert time.monotonic() - began_at < scaled(25)


def test_a_query_cancelled_while_waiting_for_a_process_reports_the_engine_as_unreachable(
    engine: HostedEngine,
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    fork_server_pid = engine.pids()[0]
    os.kill(fork_server_pid, signal.SIGSTOP)
    try:
        os.kill(engine.pids()[-1], signal.SIGKILL)
        until(lambda: len(engine.pids()) == 1, 10)
        outcomes: list[object] = []
        cancel = CancelToken()
        query_thread = run_in_thread(lambda: rows(engine, "select id from `s`", cancel=cancel), outcomes)
        time.sleep(1)
        cancel.cancel()
        query_thread.join(10)
    finally:
        os.kill(fork_server_pid, signal.SIGCONT)
    (error,) = outcomes
    assert isinstance(error, EngineUnreachable)
    assert rows(engine, "select id from `s`") == [("a",)]


def test_the_query_that_used_the_memory_is_killed_not_a_newer_one(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    outcomes: list[object] = []
    older_query_thread = run_in_thread(lambda: rows(engine, "select 'swelling' as d from `s`", LIMITS), outcomes)
    time.sleep(0.2)
    assert rows(engine, "select 'patient' as d from `s`", LIMITS) == [("patient",)]
    older_query_thread.join()
    (error,) = outcomes
    assert isinstance(error, QueryKilled)
