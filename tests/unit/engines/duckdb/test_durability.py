"""Acknowledged events survive a stop, a crash and a torn log. Files of other software or versions are refused."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.storage import wal
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import DataFolderInUse, DataFolderUnusable, OutOfDisk
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from tests.contract.engine_asking import NOW_US, batch, ids, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending
from tests.unreadable_folders import make_unreadable
from tests.waiting import until_flushed

Reopen = Callable[[], DuckDBEngine]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def reopen(folder: Path) -> Iterator[Reopen]:
    """Yield a function that opens the folder. It first closes the engine that it opened before."""
    opened: list[DuckDBEngine] = []

    def open_engine() -> DuckDBEngine:
        for opened_engine in opened:
            opened_engine.close()
        opened.clear()
        engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
        engine.create_stream_tables([stream("s"), stream("t")])
        opened.append(engine)
        return engine

    yield open_engine
    for opened_engine in opened:
        opened_engine.close()


def make_events(first: int, count: int) -> list[Event]:
    return [Event(f"e{number}", NOW_US, metadata=f'{{"n":{number}}}') for number in range(first, first + count)]


def test_flushed_and_pending_events_are_stored_once_after_a_restart(reopen: Reopen) -> None:
    engine = reopen()
    engine.append([batch(*make_events(0, ROW_GROUP_ROWS + 500))])
    engine.append([batch(*make_events(0, 3), to="t")])
    for _ in range(3):
        engine = reopen()
        assert rows(engine, "select count(*), count(distinct id) from `s`") == [(ROW_GROUP_ROWS + 500,) * 2]
        assert ids(engine, "t") == ["e0", "e1", "e2"]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_after_a_restart_an_id_of_one_project_is_new_in_other_projects(reopen: Reopen, *, is_flushed: bool) -> None:
    engine = reopen()
    engine.append([batch(*(Event("a", NOW_US, project=project) for project in ("p", None)))])
    if is_flushed:
        flush_pending(engine)
    events = [Event("a", NOW_US, project=project) for project in ("q", "p", None, "")]
    (appended,) = reopen().append([batch(*events)])
    assert appended.repeated_positions == (1, 2)


def test_a_retried_append_counts_only_events_of_its_own_project_as_its_own(reopen: Reopen) -> None:
    engine = reopen()
    engine.append([batch(Event("a", NOW_US, project="p"))])
    acknowledged = engine.next_event_numbers()
    sent_batch = batch(Event("a", NOW_US, project="p"), Event("a", NOW_US, project="q"))
    engine.append([sent_batch])
    (retried,) = engine.retry_append([sent_batch], acknowledged)
    assert (retried.accepted, retried.repeated_positions) == (1, (0,))


def test_duplicates_are_recognized_after_a_restart(reopen: Reopen) -> None:
    reopen().append([batch(*make_events(0, 10))])
    (appended,) = reopen().append([batch(*make_events(5, 10))])
    assert (appended.accepted, appended.duplicates) == (5, 5)


def test_shapes_are_known_after_a_restart(reopen: Reopen) -> None:
    learnt: ValueKindsByPath = {("metadata", "n"): frozenset({ValueKind.NUMBER})}
    reopen().append([ReceivedEventBatch("s", make_events(0, 3), NOW_US, learnt)])
    assert reopen().shapes_by_stream()["s"].value_kinds_by_path == learnt
    assert reopen().shapes_by_stream()["s"].value_kinds_by_path == learnt


@pytest.mark.parametrize("name", ["", "00000001.log"])
def test_a_log_that_cannot_be_read_is_refused_and_not_taken_for_empty(
    reopen: Reopen, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    reopen().append([batch(*make_events(0, 3))])
    with monkeypatch.context() as patch:
        make_unreadable(patch, folder / "journal" / name)
        with pytest.raises(DataFolderUnusable, match=r"journal.* in the data folder cannot be used: Permission denied"):
            reopen()
    assert ids(reopen()) == ["e0", "e1", "e2"]


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_truncated_record_at_the_end_is_skipped(reopen: Reopen, folder: Path, cut: int) -> None:
    engine = reopen()
    engine.append([batch(*make_events(0, 3))])
    engine.append([batch(*make_events(3, 3))])
    (segment,) = (folder / "journal").glob("*.log")
    log_bytes = segment.read_bytes()
    engine.close()
    segment.write_bytes(log_bytes[:-cut])
    fresh = reopen()
    assert ids(fresh) == ["e0", "e1", "e2"]
    fresh.append([batch(*make_events(6, 1))])
    assert ids(fresh) == ["e0", "e1", "e2", "e6"]


def damage_log(folder: Path, reopen: Reopen, *, at: int, bytes_: bytes) -> None:
    """Write five events, each in a separate record of the write-ahead log, and then overwrite some bytes of the log."""
    engine = reopen()
    for number in range(5):
        engine.append([batch(*make_events(number, 1))])
    (segment,) = (folder / "journal").glob("*.log")
    log_bytes = segment.read_bytes()
    engine.close()
    segment.write_bytes(log_bytes[:at] + bytes_ + log_bytes[at + len(bytes_) :])


def reopen_and_read(folder: Path) -> tuple[list[object], list[str]]:
    """Return the ids of the stored events, and the reports to the operator."""
    reports: list[str] = []
    engine = DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(report_message=reports.append), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    stored = ids(engine)
    engine.close()
    return list(stored), reports


def test_damage_inside_the_log_is_reported_and_loses_only_the_damaged_event(reopen: Reopen, folder: Path) -> None:
    engine = reopen()
    engine.append([batch(*make_events(9, 1))])
    (segment,) = (folder / "journal").glob("*.log")
    record_bytes = segment.stat().st_size
    engine.close()
    segment.unlink()
    damage_log(folder, reopen, at=2 * record_bytes + 20, bytes_=b"\0" * 8)

    stored, reports = reopen_and_read(folder)

    assert stored == ["e0", "e1", "e3", "e4"]
    assert [sentence for sentence in reports if "cannot be read" in sentence and ".damaged" in sentence]
    assert list((folder / "journal").glob("*.damaged"))


def test_events_missing_from_both_file_and_log_are_counted(reopen: Reopen, folder: Path) -> None:
    """Remove the engine's file, so that the flushed events are in neither the file nor the log."""
    engine = reopen()
    engine.append([batch(*make_events(0, ROW_GROUP_ROWS))])
    until_flushed(folder)
    engine.append([batch(*make_events(ROW_GROUP_ROWS, 2))])
    (segment,) = (folder / "journal").glob("*.log")
    log_bytes = segment.read_bytes()
    engine.close()
    (folder / "events.duckdb").unlink()
    segment.write_bytes(log_bytes)

    stored, reports = reopen_and_read(folder)

    assert stored == [f"e{ROW_GROUP_ROWS}", f"e{ROW_GROUP_ROWS + 1}"]
    assert [
        report
        for report in reports
        if report.startswith(f"{ROW_GROUP_ROWS:,} events of s that were stored are neither in")
    ]


@pytest.mark.parametrize("tail", [b"\0" * 64, b"\x05\0\0\0torn"], ids=["zeros", "torn"])
def test_an_unfinished_write_at_the_end_is_reported_and_does_not_prevent_a_start(
    reopen: Reopen, folder: Path, tail: bytes
) -> None:
    engine = reopen()
    engine.append([batch(*make_events(0, 3))])
    (segment,) = (folder / "journal").glob("*.log")
    log_bytes = segment.read_bytes()
    engine.close()
    segment.write_bytes(log_bytes + tail)

    stored, reports = reopen_and_read(folder)

    assert stored == ["e0", "e1", "e2"]
    assert [sentence for sentence in reports if "cut off" in sentence]


def test_events_of_an_unprepared_stream_do_not_prevent_a_start(reopen: Reopen, folder: Path) -> None:
    reopen().append([batch(*make_events(0, 3), to="t")])
    reopen().close()
    without = DuckDBEngine(folder, DuckDBTarget())
    without.create_stream_tables([stream("s")])
    without.close()


def test_a_full_disk_is_reported_and_stored_events_stay(reopen: Reopen, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reopen()
    engine.append([batch(*make_events(0, 3))])

    write_completely = os.write

    def write_half(descriptor: int, data: memoryview) -> int:
        """Write only half of a record's payload, and raise the error for a full disk."""
        if len(data) <= wal._RECORD_HEADER_FORMAT.size:
            return write_completely(descriptor, data)
        write_completely(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half)
        with pytest.raises(OutOfDisk) as raised:
            engine.append([batch(*make_events(3, 3))])
    assert ids(engine) == ["e0", "e1", "e2"]
    # Appending works again, even while a variable still references the exception with its traceback.
    assert engine.append([batch(*make_events(3, 7))])[0].accepted == 7, raised
    assert ids(reopen()) == [f"e{number}" for number in range(10)]


def test_a_folder_locked_by_another_process_is_refused(reopen: Reopen, folder: Path) -> None:
    reopen()
    script = (
        "from pathlib import Path; import sys; from cordwood.engines.duckdb.storage import session;"
        "session._FILE_LOCK_TIMEOUT_SECONDS = 0.1; session.Session(Path(sys.argv[1]), memory_bytes=10**8, threads=1)"
    )
    outcome = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False)
    assert DataFolderInUse.__name__ in outcome.stderr


def test_opening_waits_for_a_process_that_is_about_to_end(reopen: Reopen, folder: Path) -> None:
    reopen().close()
    script = (
        "from pathlib import Path; import sys, time; from cordwood.engines.duckdb.storage.session import Session;"
        "Session(Path(sys.argv[1]), memory_bytes=10**8, threads=1); print('open', flush=True); time.sleep(1)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        assert ids(reopen()) == []
        assert other.wait() == 0


def test_a_file_that_is_not_a_database_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "events.duckdb").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(DataFolderUnusable):
        DuckDBEngine(folder, DuckDBTarget())


def test_a_store_of_a_newer_version_is_refused(reopen: Reopen, folder: Path) -> None:
    reopen().close()
    with duckdb.connect(str(folder / "events.duckdb")) as store:
        store.execute("UPDATE cordwood.stamp SET version = 99")
    with pytest.raises(DataFolderUnusable, match="version 99"):
        DuckDBEngine(folder, DuckDBTarget())


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO 'out.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET threads = 64",
        "SET temp_directory = '/tmp'",
    ],
)
def test_the_session_is_locked_down(folder: Path, statement: str) -> None:
    folder.mkdir()
    session = Session(folder, memory_bytes=10**8, threads=1)
    with pytest.raises(duckdb.Error):
        session.cursor().execute(statement)
    session.close()
