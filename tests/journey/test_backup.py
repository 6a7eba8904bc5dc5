"""Backups: consistent snapshots while events arrive, and their restore."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import httpx
import pytest

from tests.journey.conftest import PRIVATE, PROGRAM, PUBLIC, Service, Start
from tests.journey.modified_service import CONSTANT_SWEEPS
from tests.journey.test_cli_clients import Result, cordwood
from tests.journey.test_crash import STREAMS_FILE, Writer
from tests.waiting import until

STREAM, EDGE_STREAM = "postgres.logs", "cloudflare.logs.prod"
EVENTS = [
    {
        "id": "timed",
        "timestamp": "2026-01-01T00:00:00Z",
        "project": "acme",
        "metadata": {"a": [1, {"b": None}], "c": 1.5},
    },
    {"id": "untimed", "project": "acme", "metadata": {"level": "info"}, "extra": {"deep": True}},
    "no object",
]
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "backup.md"
BACKUP_FILES = {"events.duckdb", "keys.db", "manifest.json", "redaction.key"}


def connection_options(service: Service) -> tuple[str, ...]:
    return "--url", service.url, "--key", PRIVATE


def rows_of(tmp_path: Path, *options: str, stream: str = STREAM) -> list[tuple[object, ...]]:
    """Return the events of a stream with all stored fields."""
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    exported = cordwood("export", str(file), "--stream", stream, *options)
    assert exported.returncode == 0, exported.stderr
    times = "epoch_us(timestamp), epoch_us(ingested_at)"
    relation = duckdb.read_parquet(str(file)).order("id")
    return relation.project(f"id, {times}, event_message, project, metadata, extras, timestamp_inferred").fetchall()


@pytest.fixture(params=["from a service", "from its folder"])
def backup_and_service(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> tuple[Result, Path, Service]:
    """Make a backup, either over HTTP or from the folder of the stopped service."""
    service = start()
    service.send(STREAM, EVENTS)
    cordwood("keys", "create", "--scope", "private", "--note", "kept", *connection_options(service))
    options = connection_options(service)
    if request.param == "from its folder":
        service.stop()
        options = ("--data-dir", str(service.data_dir))
    return cordwood("backup", str(tmp_path / "backup"), *options), tmp_path / "backup", service


def restore(backup: Path, into: Path) -> Result:
    return cordwood("restore", str(backup), "--data-dir", str(into))


def test_a_restored_folder_equals_the_original(
    backup_and_service: tuple[Result, Path, Service], tmp_path: Path
) -> None:
    result, backup, service = backup_and_service
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert "is a complete backup" in result.stdout
    assert {file.name for file in backup.iterdir()} - {"journal", "events.duckdb.wal"} == BACKUP_FILES
    restored_folder = tmp_path / "again"
    restored = restore(backup, restored_folder)
    assert (restored.returncode, restored.stderr) == (0, ""), restored.stdout
    assert "3 events in 2 streams" in restored.stdout
    original_rows, restored_rows = ("--data-dir", str(service.data_dir)), ("--data-dir", str(restored_folder))
    rows = rows_of(tmp_path, *restored_rows)
    assert rows == rows_of(tmp_path, *original_rows)
    assert [row[-1] for row in rows] == [False, True]
    assert (
        cordwood("quarantine", "list", *restored_rows).stdout == cordwood("quarantine", "list", *original_rows).stdout
    )
    assert "kept" in cordwood("keys", "list", *restored_rows).stdout
    assert (restored_folder / "redaction.key").read_text() == (service.data_dir / "redaction.key").read_text()
    assert not (restored_folder / "restoring").exists()


def test_a_restore_names_the_streams_that_are_not_defined(start: Start, tmp_path: Path) -> None:
    streams = tmp_path / "streams.toml"
    streams.write_text('[[stream]]\nname = "mine.one"\n[[stream]]\nname = "mine.two"\n')
    service = start("--streams", str(streams))
    service.send("mine.one", EVENTS[:2])
    service.send("mine.two", EVENTS[:1])
    assert cordwood("backup", str(tmp_path / "backup"), *connection_options(service)).returncode == 0
    without = restore(tmp_path / "backup", tmp_path / "again")
    assert "0 events in 0 streams" in without.stdout
    assert "also holds 3 events of streams that are not defined: mine.one, mine.two." in without.stdout
    arguments = (str(tmp_path / "backup"), "--data-dir", str(tmp_path / "third"), "--streams", str(streams))
    complete = cordwood("restore", *arguments)
    assert "3 events in 2 streams" in complete.stdout
    assert "not defined" not in complete.stdout


def test_a_restored_folder_has_the_shapes_of_streams(
    backup_and_service: tuple[Result, Path, Service], start: Start
) -> None:
    _, backup, service = backup_and_service
    restored_folder = service.data_dir.with_name("again")
    restore(backup, restored_folder)
    other = start(data_dir=restored_folder)
    shape = other.client.get(f"/api/sources/{STREAM}/schema", params={"variant": "dot"}).json()
    assert {"metadata.a", "metadata.c", "extra.deep"} <= set(json.dumps(shape).replace('"', " ").split()) | set(shape)
    assert other.send(STREAM, EVENTS[:1]).json()["duplicates"] == 1


@pytest.mark.parametrize(
    "program", [PROGRAM, CONSTANT_SWEEPS], ids=["with default constants", "while retention sweeps run"]
)
def test_a_backup_under_load_is_a_consistent_snapshot(start: Start, tmp_path: Path, program: tuple[str, ...]) -> None:
    (tmp_path / "streams.toml").write_text(STREAMS_FILE)
    service = start("--streams", str(tmp_path / "streams.toml"), program=program)
    writers = [Writer(service.url, seed) for seed in range(8)]
    for writer in writers:
        writer.start()
    while sum(len(writer.acknowledged) for writer in writers) < 30_000:
        threading.Event().wait(0.05)
    before = {event_id for writer in writers for event_id in list(writer.acknowledged)}
    result = cordwood("backup", str(tmp_path / "backup"), *connection_options(service))
    acknowledged_meanwhile = {event_id for writer in writers for event_id in list(writer.acknowledged)} - before
    service.stop()
    for writer in writers:
        writer.join()
    assert result.returncode == 0, result.stderr
    assert acknowledged_meanwhile
    assert restore(tmp_path / "backup", tmp_path / "again").returncode == 0
    restored_rows = rows_of(tmp_path, "--data-dir", str(tmp_path / "again"), stream=EDGE_STREAM)
    ids = {row[0] for row in restored_rows}
    assert len(ids) == len(restored_rows)
    assert before <= ids
    all_rows = {row[0]: row for row in rows_of(tmp_path, "--data-dir", str(service.data_dir), stream=EDGE_STREAM)}
    # Events past their retention are deleted from both stores independently, so they are not compared.
    assert all(all_rows[row[0]] == row for row in restored_rows if not str(row[0]).startswith("old-"))


def without_manifest(backup: Path) -> None:
    (backup / "manifest.json").unlink()


def truncate_file(backup: Path) -> None:
    file = backup / "events.duckdb"
    file.write_bytes(file.read_bytes()[:-1])


def flip_bit(backup: Path) -> None:
    file = backup / "keys.db"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def without_a_file(backup: Path) -> None:
    (backup / "redaction.key").unlink()


def from_newer_version(backup: Path) -> None:
    manifest = backup / "manifest.json"
    manifest.write_text(re.sub(r'"format":\d+', '"format":99', manifest.read_text()))


def with_incomplete_manifest(backup: Path) -> None:
    (backup / "manifest.json").write_text('{"format":1}')


def with_path_outside(backup: Path) -> None:
    manifest = backup / "manifest.json"
    manifest.write_text(manifest.read_text().replace("keys.db", "../keys.db"))


@pytest.mark.parametrize(
    ("damage", "expected_message"),
    [
        (without_manifest, "is not a complete backup"),
        (truncate_file, "has changed since the backup was made"),
        (flip_bit, "has changed since the backup was made"),
        (without_a_file, "cannot be read"),
        (from_newer_version, "up to version 1"),
        (with_incomplete_manifest, "cannot be read"),
        (with_path_outside, "This is not a backup"),
    ],
)
def test_a_damaged_backup_is_refused_and_the_folder_stays_empty(
    complete_backup: Path, tmp_path: Path, damage: Callable[[Path], None], expected_message: str
) -> None:
    backup, into = tmp_path / "backup", tmp_path / "into"
    shutil.copytree(complete_backup, backup)
    damage(backup)
    refused = restore(backup, into)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert expected_message in refused.stderr
    assert not into.exists() or [place.name for place in into.iterdir()] == ["cordwood.lock"]


@pytest.fixture(scope="module")
def complete_backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a backup of a data folder that has one event."""
    place = tmp_path_factory.mktemp("whole")
    (place / "one.ndjson").write_text('{"id": "one"}\n')
    folder = ("--data-dir", str(place / "data"))
    cordwood("import", str(place / "one.ndjson"), "--stream", STREAM, *folder)
    assert cordwood("backup", str(place / "backup"), *folder).returncode == 0
    return place / "backup"


def test_events_of_a_newer_store_are_refused(complete_backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    restore(complete_backup, data)
    with duckdb.connect(str(data / "events.duckdb")) as store:
        store.execute("UPDATE cordwood.stamp SET version = 99")
    shutil.copytree(data, tmp_path / "newer")
    refused = cordwood("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "newer"))
    assert (refused.returncode, "version 99" in refused.stderr) == (1, True)
    assert not (tmp_path / "backup").exists()


def test_backup_and_restore_overwrite_nothing(start: Start, complete_backup: Path, tmp_path: Path) -> None:
    service = start()
    in_use = restore(complete_backup, service.data_dir)
    assert (in_use.returncode, "is in use by process" in in_use.stderr) == (1, True)
    service.stop()
    full = restore(complete_backup, service.data_dir)
    assert (full.returncode, "is not empty" in full.stderr) == (1, True)
    assert restore(complete_backup, tmp_path / "twice").returncode == 0
    second_restore = restore(complete_backup, tmp_path / "twice")
    assert (second_restore.returncode, "is not empty: it holds events.duckdb" in second_restore.stderr) == (1, True)
    assert "Restore into a new one" in second_restore.stderr
    assert len(rows_of(tmp_path, "--data-dir", str(tmp_path / "twice"))) == 1
    restore_result = cordwood("backup", str(complete_backup), "--data-dir", str(service.data_dir))
    assert (restore_result.returncode, "is not empty" in restore_result.stderr) == (1, True)
    missing_folder_result = cordwood("backup", str(tmp_path / "b"), "--data-dir", str(tmp_path / "nothing"))
    assert (missing_folder_result.returncode, "the data folder does not exist" in missing_folder_result.stderr) == (
        1,
        True,
    )


@pytest.fixture
def interrupted_restore(complete_backup: Path, tmp_path: Path) -> Path:
    """Kill a restore that has copied some of its files, and return its folder.

    The restore waits at the next file, because the test replaced it by a named pipe.
    """
    stalled, into = tmp_path / "stalled", tmp_path / "into"
    shutil.copytree(complete_backup, stalled)
    (stalled / "redaction.key").unlink()
    os.mkfifo(stalled / "redaction.key")
    copied = into / "restoring" / "events.duckdb"
    process = subprocess.Popen([sys.executable, *PROGRAM, "restore", str(stalled), "--data-dir", str(into)])
    until(lambda: copied.exists() and copied.stat().st_size == (complete_backup / "events.duckdb").stat().st_size)
    process.kill()
    process.wait()
    return into


def test_an_interrupted_restore_is_not_served_and_can_be_repeated(
    interrupted_restore: Path, complete_backup: Path, tmp_path: Path
) -> None:
    for command in (["serve", "--port", "0"], ["export", str(tmp_path / "out.parquet"), "--stream", STREAM]):
        refused = cordwood(*command, "--data-dir", str(interrupted_restore))
        assert (refused.returncode, f"A restore into {interrupted_restore} was interrupted" in refused.stderr) == (
            1,
            True,
        )
        assert "cordwood restore" in refused.stderr
    assert restore(complete_backup, interrupted_restore).returncode == 0
    assert not (interrupted_restore / "restoring").exists()
    assert len(rows_of(tmp_path, "--data-dir", str(interrupted_restore))) == 1


def test_a_restore_interrupted_while_moving_files_needs_a_new_folder(
    interrupted_restore: Path, complete_backup: Path
) -> None:
    (interrupted_restore / "restoring" / "events.duckdb").rename(interrupted_restore / "events.duckdb")
    (interrupted_restore / "restoring" / "keys.db").write_bytes(b"")
    second_restore = restore(complete_backup, interrupted_restore)
    assert (second_restore.returncode, "is not empty: it holds events.duckdb" in second_restore.stderr) == (1, True)
    served = cordwood("serve", "--port", "0", "--data-dir", str(interrupted_restore))
    assert (served.returncode, "was interrupted" in served.stderr) == (1, True)


def test_only_an_unrestricted_private_key_may_make_a_backup(start: Start) -> None:
    service = start()
    backup_and_service = [{"scopes": "private", "pins": {"project": "acme"}}, {"scopes": "private", "redact": True}]
    keys = [service.client.post("/api/access-tokens", json=terms).json()["token"] for terms in backup_and_service]
    for key in (PUBLIC, *keys):
        assert httpx.get(f"{service.url}/api/backup", headers={"X-API-KEY": key}).status_code == 403


def test_a_disconnected_client_releases_the_snapshot(start: Start, tmp_path: Path) -> None:
    service = start()
    service.send(STREAM, [{"id": str(number), "metadata": {"text": "x" * 50_000}} for number in range(200)])
    for _ in range(3):
        with service.client.stream("GET", "/api/backup") as answer:
            next(answer.iter_raw(1024))
    assert cordwood("backup", str(tmp_path / "backup"), *connection_options(service)).returncode == 0
    assert service.stop() == 0


def test_the_commands_of_the_guide_work(start: Start, tmp_path: Path) -> None:
    service = start()
    service.send(STREAM, EVENTS)
    tools = str(Path(sys.executable).parent)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CORDWOOD_URL": service.url,
        "CORDWOOD_KEY": PRIVATE,
        "BACKUPS": str(tmp_path),
    }
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        done = subprocess.run(["bash", "-euc", block], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), block
    assert (tmp_path / "again" / "events.duckdb").exists()
    assert len(blocks) == 3
