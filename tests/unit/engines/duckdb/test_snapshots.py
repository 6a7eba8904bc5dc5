"""A snapshot for a backup preserves the files as they are when it is made, although writes continue."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage import session
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import BackupFile
from cordwood.errors import DataFolderInUse
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, ids, rows, stream
from tests.waiting import until_flushed

COUNTS_QUERY = "select count(*), count(distinct id) from `s`"


def open_engine(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    return engine


def make_events(first: int, count: int) -> list[Event]:
    return [
        Event(f"e{number}", NOW_US, metadata=f'{{"n":{number},"b":"{number:064}"}}')
        for number in range(first, first + count)
    ]


def write_snapshot(file: BackupFile, folder: Path) -> None:
    place = folder / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"".join(file.read_chunks()))


def test_a_snapshot_excludes_later_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MAX_DATABASE_LOG_BYTES", 1)
    engine = open_engine(tmp_path / "data")
    engine.append([batch(*make_events(0, ROW_GROUP_ROWS + 5000))])
    with engine.open_backup_snapshot() as files:
        for first in range(100_000, 160_000, 20_000):
            engine.append([batch(*make_events(first, 20_000))])
        engine.delete_expired_events(NOW_US)
        until_flushed(tmp_path / "data")
        for file in files:
            write_snapshot(file, tmp_path / "copy")
    copy = open_engine(tmp_path / "copy")
    assert rows(copy, COUNTS_QUERY) == [(ROW_GROUP_ROWS + 5000,) * 2]
    assert rows(
        copy, "select cast(m.b as string) from `s` as t cross join unnest(t.metadata) as m where t.id = 'e7'"
    ) == [(f"{7:064}",)]
    assert rows(engine, COUNTS_QUERY) == [(ROW_GROUP_ROWS + 65_000,) * 2]
    copy.close()
    engine.close()


def test_a_snapshot_includes_pending_events(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "data")
    engine.append([batch(*make_events(0, 3))])
    with engine.open_backup_snapshot() as files:
        for file in files:
            write_snapshot(file, tmp_path / "copy")
    copy = open_engine(tmp_path / "copy")
    assert ids(copy) == ["e0", "e1", "e2"]
    copy.close()
    engine.close()


def test_a_checkpoint_empties_duckdbs_log_without_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(tmp_path / "data")
    log = tmp_path / "data" / "events.duckdb.wal"
    engine.append([batch(*make_events(0, 5000))])
    until_flushed(tmp_path / "data")
    assert log.stat().st_size > 0
    monkeypatch.setattr(session, "_MAX_DATABASE_LOG_BYTES", 1)
    engine.append([batch(*make_events(5000, 5000))])
    until_flushed(tmp_path / "data")
    deadline = time.monotonic() + 30
    while log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not log.exists()
    engine.close()


def test_the_data_folder_stays_locked_after_a_snapshot(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "data")
    with engine.open_backup_snapshot() as files:
        assert all(len(b"".join(file.read_chunks())) == file.size for file in files)
    script = (
        "from pathlib import Path; import sys; from cordwood.engines.duckdb.storage import session;"
        "session._FILE_LOCK_TIMEOUT_SECONDS = 0.1; session.Session(Path(sys.argv[1]), memory_bytes=10**8, threads=1)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert DataFolderInUse.__name__ in outcome.stderr
    engine.close()
