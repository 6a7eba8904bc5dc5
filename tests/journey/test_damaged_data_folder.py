"""A data folder that is damaged or of a newer version is refused. The message names file, cause and remedy."""

import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import pytest

from tests.journey.test_cli_clients import cordwood

Damage = Callable[[Path], None]

RESTORE_ADVICE = "restore a backup"
NEWER_VERSION_ADVICE = "Start the cordwood that wrote it, or a newer one."
_MASK_64 = 2**64 - 1


@pytest.fixture(scope="module")
def intact_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an undamaged data folder with one event."""
    place = tmp_path_factory.mktemp("sound")
    (place / "events.ndjson").write_text('{"id": "one", "project": "p"}\n')
    result = cordwood(
        "import", str(place / "events.ndjson"), "--stream", "postgres.logs", "--data-dir", str(place / "d")
    )
    assert result.returncode == 0, result.stderr
    return place / "d"


def overwrite(name: str, data: bytes) -> Damage:
    def apply_damage(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return apply_damage


def truncate_to_half(name: str) -> Damage:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def replace_by_folder(name: str) -> Damage:
    def apply_damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return apply_damage


def replace_by_file(name: str) -> Damage:
    def apply_damage(folder: Path) -> None:
        shutil.rmtree(folder / name)
        (folder / name).write_bytes(b"")

    return apply_damage


def run_sql_in_key_store(statement: str) -> Damage:
    def apply_damage(folder: Path) -> None:
        with sqlite3.connect(folder / "keys.db") as store:
            store.execute(statement)
        store.close()

    return apply_damage


def run_sql_in_event_store(*statements: str) -> Damage:
    def apply_damage(folder: Path) -> None:
        with duckdb.connect(str(folder / "events.duckdb")) as store:
            for statement in statements:
                store.execute(statement)

    return apply_damage


def flip_bits(folder: Path) -> None:
    """Flip one bit in each byte after the headers."""
    file = folder / "events.duckdb"
    data = file.read_bytes()
    file.write_bytes(data[:12_288] + bytes(byte ^ 1 for byte in data[12_288:]))


def set_newer_engine_version(folder: Path) -> None:
    """Set another storage version in the main header of the file, and correct the header's checksum."""
    file = folder / "events.duckdb"
    data = bytearray(file.read_bytes())
    struct.pack_into("<Q", data, 12, 5000)
    struct.pack_into("<Q", data, 0, checksum(struct.unpack("<511Q", data[8:4096])))
    file.write_bytes(data)


def checksum(integers: Iterable[int]) -> int:
    value = 5381
    for integer in integers:
        value ^= integer * 0xBF58476D1CE4E5B9 & _MASK_64
    return value


@pytest.mark.parametrize(
    ("apply_damage", "place", "cause", "advice"),
    [
        (overwrite("keys.db", b"no keys" * 999), "keys.db", "not a database", "move it away"),
        (truncate_to_half("keys.db"), "keys.db", "malformed", "move it away"),
        (replace_by_folder("keys.db"), "keys.db", "unable to open", "move it away"),
        (
            run_sql_in_key_store("insert into keys (digest, scopes, pins, created_at) values ('d', 'private', '{', 1)"),
            "keys.db",
            "Expecting property name",
            "move it away",
        ),
        (
            overwrite("events.duckdb", b"no events" * 999),
            "events.duckdb",
            "not a valid DuckDB database",
            RESTORE_ADVICE,
        ),
        (overwrite("events.duckdb", b""), "events.duckdb", "not a valid DuckDB database", RESTORE_ADVICE),
        (truncate_to_half("events.duckdb"), "events.duckdb", "Could not read enough bytes", RESTORE_ADVICE),
        (replace_by_folder("events.duckdb"), "events.duckdb", "Is a directory", RESTORE_ADVICE),
        (flip_bits, "events.duckdb", "does not match stored checksum", RESTORE_ADVICE),
        (set_newer_engine_version, "events.duckdb", "storage version number 5000", NEWER_VERSION_ADVICE),
        (
            run_sql_in_event_store("update cordwood.stamp set version = 99"),
            "data folder",
            "of version 99",
            NEWER_VERSION_ADVICE,
        ),
        (
            run_sql_in_event_store("update cordwood.stamp set version = -5"),
            "events.duckdb",
            "it says -5",
            RESTORE_ADVICE,
        ),
        (run_sql_in_event_store("drop table cordwood.stamp"), "events.duckdb", "it says None", RESTORE_ADVICE),
        (
            run_sql_in_event_store(
                "alter table cordwood.stamp alter version type varchar", "update cordwood.stamp set version = 'x'"
            ),
            "events.duckdb",
            "it says 'x'",
            RESTORE_ADVICE,
        ),
        (
            run_sql_in_event_store("alter table cordwood.sealed rename first to f"),
            "events.duckdb",
            '"first" not found',
            RESTORE_ADVICE,
        ),
        (
            run_sql_in_event_store("insert into cordwood.shape values ('s', ['p'], 'odd')"),
            "shapes",
            "'odd'",
            RESTORE_ADVICE,
        ),
        (replace_by_file("journal"), "journal", "File exists", ""),
        (overwrite("redaction.key", "ключ".encode()), "redaction.key", "ascii", "Restore it from a backup"),
    ],
)
def test_damage_is_reported_with_file_cause_and_remedy(
    intact_folder: Path, tmp_path: Path, apply_damage: Damage, place: str, cause: str, advice: str
) -> None:
    shutil.copytree(intact_folder, tmp_path / "data")
    apply_damage(tmp_path / "data")
    refused = cordwood("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, refused.stdout) == (1, "")
    message = refused.stderr.strip()
    assert message.startswith("cordwood serve: ")
    assert "\n" not in message
    assert [part for part in (place, cause, advice) if part not in message] == [], message


def test_a_client_command_reports_a_damaged_folder(intact_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(intact_folder, tmp_path / "data")
    (tmp_path / "data" / "keys.db").write_bytes(b"no keys" * 999)
    for command in (("keys", "list"), ("backup", str(tmp_path / "backup")), ("quarantine", "list")):
        refused = cordwood(*command, "--data-dir", str(tmp_path / "data"))
        assert (refused.returncode, "keys.db cannot be used: file is not a database" in refused.stderr) == (1, True)
        assert "Traceback" not in refused.stderr


def test_a_failed_start_names_the_option_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = str(occupied.getsockname()[1])
        expected = {
            ("--port", port, "--data-dir", str(tmp_path / "a")): (f"port {port}: Address already in use", "--port"),
            ("--data-dir", str(tmp_path / "file")): ("there is a file of this name", "--data-dir"),
            ("--data-dir", str(tmp_path / "file" / "b")): ("Not a directory", "--data-dir"),
            ("--data-dir", "/proc/cordwood"): ("cannot be used", "--data-dir"),
        }
        for arguments, (cause, remedy) in expected.items():
            ended = cordwood("serve", *arguments)
            assert ended.returncode == 1
            assert cause in ended.stderr
            assert remedy in ended.stderr


def test_an_older_python_is_refused_with_the_required_version() -> None:
    older = "import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_module('cordwood', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.startswith("cordwood needs Python 3.11 or newer")) == (1, True)
