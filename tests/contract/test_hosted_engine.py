"""What an engine in a process of its own does beyond the port: its process ends at any moment, and is replaced."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from cordwood.engines.cancel_token import CancelToken
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Appended, Cancel
from cordwood.engines.hosted.engine_process import run_engine
from cordwood.engines.hosted.hosted_engine import HostedEngine
from cordwood.errors import DataFolderUnusable, EngineUnreachable, OutOfMemory, QueryKilled
from cordwood.model.event import Batch, Event
from cordwood.model.rows import Rows
from cordwood.model.shape import Kinds, ValueKind
from cordwood.observe.observation import EngineEnded, Noted
from cordwood.observe.observer import Note
from cordwood.processes.fork_server import ForkServer
from cordwood.sql.stages import Question
from tests.contract.conftest import open_hosted
from tests.contract.engine_asking import LIMITS, NOW_US, batch, ids, rows
from tests.waiting import until

CEILING = 300 * 10**6
LARGE_BYTES, GROWTH_BYTES = 400 * 10**6, 10**6


def end_process(number: signal.Signals) -> None:
    """End this process before its next statement: another of its threads may receive the signal a moment later."""
    os.kill(os.getpid(), number)
    time.sleep(600)


class FragileEngine(DuckDBEngine):
    """Ends its process where a marker asks for it, before it has said what became of the request."""

    def append(self, batches: Sequence[Batch]) -> list[Appended]:
        return self._told(super().append(batches), batches)

    def retry_append(self, batches: Sequence[Batch], acknowledged: Mapping[str, int]) -> list[Appended]:
        return self._told(super().retry_append(batches, acknowledged), batches)

    def _told(self, appended: list[Appended], batches: Sequence[Batch]) -> list[Appended]:
        marker = self._file.parent / "ended"
        if any(event.id == "deadly" for one in batches for event in one.events) and not marker.exists():
            marker.touch()
            end_process(signal.SIGKILL)
        return appended

    def answer(self, question: Question, limits: AnswerLimits, cancel: Cancel) -> Rows:
        stop = threading.Event()
        cancel.on_cancel(stop.set)
        if "deadly" in question.statement.sql:
            end_process(signal.SIGSEGV)
        if "large" in question.statement.sql:
            held = bytearray(b"x" * LARGE_BYTES)
            time.sleep(600)
            del held
        if "patient" in question.statement.sql and not (self._file.parent / "waited").exists():
            (self._file.parent / "waited").touch()
            time.sleep(600)
        if "swelling" in question.statement.sql:
            until((self._file.parent / "waited").exists, 20)
            time.sleep(0.2)
            held = bytearray(b"x" * LARGE_BYTES)
            time.sleep(600)
            del held
        if "growing" in question.statement.sql:
            held = bytearray(b"x" * (CEILING // 3))
            while not stop.wait(0.02):
                held += b"x" * GROWTH_BYTES
            del held
        if "unhurried" in question.statement.sql:
            stop.wait(3)
        if "detached" in question.statement.sql and not (self._file.parent / "detached").exists():
            (self._file.parent / "detached").touch()
            self._session.cursor().execute("DETACH store")
        if "stuck" in question.statement.sql:
            time.sleep(600)
        return super().answer(question, limits, cancel)


def open_fragile(folder: str, _: Note) -> FragileEngine:
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
    opened = open_hosted(tmp_path / "data", fork_server, notes.append, CEILING)
    yield opened
    opened.close()


def test_what_was_stored_and_not_acknowledged_counts_as_accepted_once(engine: HostedEngine) -> None:
    engine.append([batch(Event("old", NOW_US))])
    sent = batch(Event("old", NOW_US), Event("deadly", NOW_US), Event("a", NOW_US), Event("a", NOW_US))
    assert engine.append([sent, batch(Event("a", NOW_US), Event("b", NOW_US))]) == [
        Appended(2, 2, (0, 3)),
        Appended(1, 1, (0,)),
    ]
    assert ids(engine) == ["a", "b", "deadly", "old"]
    assert engine.facts()["s"].events == 4
    assert engine.append([sent]) == [Appended(0, 4, (0, 1, 2, 3))]


def test_shapes_are_kept_and_never_go_back_when_the_engine_is_replaced(engine: HostedEngine) -> None:
    learnt: Kinds = {("metadata", "a"): frozenset({ValueKind.TEXT})}
    engine.append([Batch("s", [Event("a", NOW_US, metadata='{"a":"b"}')], NOW_US, learnt, {"p": learnt})])
    before = engine.shapes()["s"]
    os.kill(engine.pids()[-1], signal.SIGKILL)
    assert ids(engine) == ["a"]
    after = engine.shapes()["s"]
    assert (after.kinds, after.version) == (before.kinds, before.version)
    assert engine.projects()["s"].shape("p", after).kinds == learnt


def outcome(ask: Callable[[], object], found: list[object]) -> threading.Thread:
    def work() -> None:
        try:
            found.append(ask())
        except Exception as problem:  # noqa: BLE001 - looked at below
            found.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_of_the_queries_under_way_the_one_that_ends_the_process_twice_is_the_cause(
    engine: HostedEngine, notes: list[object]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    found: list[object] = []
    others = [outcome(lambda: rows(engine, "select id, 'unhurried' as d from `s`"), found) for _ in range(3)]
    time.sleep(0.5)
    with pytest.raises(QueryKilled, match="ended both times"):
        rows(engine, "select id, 'deadly' as d from `s`")
    for other in others:
        other.join()
    assert found == [[("a", "unhurried")]] * 3
    ends = [note for note in notes if isinstance(note, EngineEnded)]
    assert [(note.queries, note.reason) for note in ends] == [
        (0, "it ended by itself"),
        (1, "the process ended both times that it ran"),
    ]


def test_a_process_that_cannot_open_the_events_is_reported_with_the_reason_alone(
    engine: HostedEngine, notes: list[object], tmp_path: Path
) -> None:
    """Each failure to open counts once: it is no process that ended soon after it was opened."""
    engine.append([batch(Event("a", NOW_US))])
    marker = tmp_path / "data" / "unreadable"
    marker.touch()
    os.kill(engine.pids()[-1], signal.SIGKILL)
    until(lambda: len(messages(notes)) >= 4, 20)
    marker.unlink()
    assert set(messages(notes)[1:]) == {"The engine cannot answer: The events cannot be read."}
    assert rows(engine, "select id from `s`") == [("a",)]


def messages(notes: list[object]) -> list[str]:
    return [note.message for note in notes if isinstance(note, Noted)]


def test_queries_that_had_just_begun_are_repeated_before_those_that_had_run_for_long(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    found: list[object] = []
    unhurried = [f"select 'unhurried' as d, {number} as n from `s`" for number in range(3)]
    asked = [outcome(partial(rows, engine, sql), found) for sql in unhurried]
    time.sleep(0.5)
    asked.append(outcome(lambda: rows(engine, "select 'patient' as d from `s`"), found))
    time.sleep(0.2)
    os.kill(engine.pids()[-1], signal.SIGKILL)
    for one in asked:
        one.join()
    assert found[0] == [("patient",)]
    assert sorted(map(str, found[1:])) == [str([("unhurried", number)]) for number in range(3)]


def test_an_engine_that_cannot_read_its_file_any_more_is_replaced_and_the_query_answered(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    before = engine.pids()
    assert rows(engine, "select id, 'detached' as d from `s`") == [("a", "detached")]
    assert engine.pids()[-1] != before[-1]


def test_a_query_that_does_not_stop_is_killed_and_others_are_asked_again(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    with pytest.raises(QueryKilled, match="did not stop within 1 s"):
        rows(engine, "select 'stuck' as d from `s`", AnswerLimits(10, 0.1))
    assert rows(engine, "select id from `s`") == [("a",)]


@pytest.mark.parametrize(
    ("text", "fault"), [("growing", OutOfMemory), ("large", QueryKilled)], ids=["stopped", "killed"]
)
def test_a_query_during_which_memory_passes_the_ceiling_is_stopped_or_killed(
    engine: HostedEngine, text: str, fault: type[Exception]
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    with pytest.raises(fault, match="passed its ceiling"):
        rows(engine, f"select '{text}' as d from `s`", LIMITS)
    assert rows(engine, "select id from `s`") == [("a",)]


def test_processes_killed_for_their_queries_do_not_delay_the_next(engine: HostedEngine, notes: list[object]) -> None:
    engine.append([batch(Event("a", NOW_US))])
    for number in range(5):
        with pytest.raises(QueryKilled, match="passed its ceiling"):
            rows(engine, f"select 'large' as d, {number} as n from `s`", LIMITS)
    assert rows(engine, "select id from `s`") == [("a",)]
    assert not [note for note in notes if isinstance(note, Noted)]


def test_processes_that_end_by_themselves_one_after_the_other_delay_the_next_by_little(engine: HostedEngine) -> None:
    """Six queries end twelve processes; a pause that doubled with each would be five seconds from the seventh on."""
    engine.append([batch(Event("a", NOW_US))])
    began_at = time.monotonic()
    for number in range(6):
        with pytest.raises(QueryKilled, match="ended both times"):
            rows(engine, f"select 'deadly' as d, {number} as n from `s`")
    assert rows(engine, "select id from `s`") == [("a",)]
    assert time.monotonic() - began_at < 25


def test_a_query_that_waited_for_a_process_until_it_was_cancelled_was_not_answered_because_of_the_process(
    engine: HostedEngine,
) -> None:
    engine.append([batch(Event("a", NOW_US))])
    suspended = engine.pids()[0]
    os.kill(suspended, signal.SIGSTOP)
    try:
        os.kill(engine.pids()[-1], signal.SIGKILL)
        until(lambda: len(engine.pids()) == 1, 10)
        found: list[object] = []
        cancel = CancelToken()
        waiting = outcome(lambda: rows(engine, "select id from `s`", cancel=cancel), found)
        time.sleep(1)
        cancel.cancel()
        waiting.join(10)
    finally:
        os.kill(suspended, signal.SIGCONT)
    (problem,) = found
    assert isinstance(problem, EngineUnreachable)
    assert rows(engine, "select id from `s`") == [("a",)]


def test_a_newer_query_is_not_taken_for_the_one_that_took_the_memory(engine: HostedEngine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    swelling: list[object] = []
    older = outcome(lambda: rows(engine, "select 'swelling' as d from `s`", LIMITS), swelling)
    time.sleep(0.2)
    assert rows(engine, "select 'patient' as d from `s`", LIMITS) == [("patient",)]
    older.join()
    (problem,) = swelling
    assert isinstance(problem, QueryKilled)
