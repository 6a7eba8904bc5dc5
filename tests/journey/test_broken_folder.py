"""A data folder that is broken, or a newer cordwood's, is refused with what is wrong, where, and what to do."""

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

Harm = Callable[[Path], None]

RESTORE = "restore a backup"
NEWER = "Start the cordwood that wrote it, or a newer one."
_EVERY_BIT = 2**64 - 1


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service that was stopped."""
    place = tmp_path_factory.mktemp("sound")
    (place / "events.ndjson").write_text('{"id": "one", "project": "p"}\n')
    made = cordwood("import", str(place / "events.ndjson"), "--stream", "postgres.logs", "--data-dir", str(place / "d"))
    assert made.returncode == 0, made.stderr
    return place / "d"


def written(name: str, data: bytes) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return harm


def cut_in_half(name: str) -> Harm:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def a_folder_instead(name: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return harm


def a_file_instead(name: str) -> Harm:
    def harm(folder: Path) -> None:
        shutil.rmtree(folder / name)
        (folder / name).write_bytes(b"")

    return harm


def key_said(statement: str) -> Harm:
    def harm(folder: Path) -> None:
        with sqlite3.connect(folder / "keys.db") as store:
            store.execute(statement)
        store.close()

    return harm


def store_said(*statements: str) -> Harm:
    def harm(folder: Path) -> None:
        with duckdb.connect(str(folder / "events.duckdb")) as store:
            for statement in statements:
                store.execute(statement)

    return harm


def scrambled(folder: Path) -> None:
    """Everything but the headers, a bit of each byte."""
    file = folder / "events.duckdb"
    data = file.read_bytes()
    file.write_bytes(data[:12_288] + bytes(byte ^ 1 for byte in data[12_288:]))


def of_a_newer_engine(folder: Path) -> None:
    """The main header with another version of storage, and the sum of it made right."""
    file = folder / "events.duckdb"
    data = bytearray(file.read_bytes())
    struct.pack_into("<Q", data, 12, 5000)
    struct.pack_into("<Q", data, 0, check_sum(struct.unpack("<511Q", data[8:4096])))
    file.write_bytes(data)


def check_sum(words: Iterable[int]) -> int:
    found = 5381
    for word in words:
        found ^= word * 0xBF58476D1CE4E5B9 & _EVERY_BIT
    return found


@pytest.mark.parametrize(
    ("harm", "place", "cause", "advice"),
    [
        (written("keys.db", b"no keys" * 999), "keys.db", "not a database", "move it away"),
        (cut_in_half("keys.db"), "keys.db", "malformed", "move it away"),
        (a_folder_instead("keys.db"), "keys.db", "unable to open", "move it away"),
        (
            key_said("insert into keys (digest, scopes, pins, created_at) values ('d', 'private', '{', 1)"),
            "keys.db",
            "Expecting property name",
            "move it away",
        ),
        (written("events.duckdb", b"no events" * 999), "events.duckdb", "not a valid DuckDB database", RESTORE),
        (written("events.duckdb", b""), "events.duckdb", "not a valid DuckDB database", RESTORE),
        (cut_in_half("events.duckdb"), "events.duckdb", "Could not read enough bytes", RESTORE),
        (a_folder_instead("events.duckdb"), "events.duckdb", "Is a directory", RESTORE),
        (scrambled, "events.duckdb", "does not match stored checksum", RESTORE),
        (of_a_newer_engine, "events.duckdb", "storage version number 5000", NEWER),
        (store_said("update cordwood.stamp set version = 99"), "data folder", "of version 99", NEWER),
        (store_said("update cordwood.stamp set version = -5"), "events.duckdb", "it says -5", RESTORE),
        (store_said("drop table cordwood.stamp"), "events.duckdb", "it says None", RESTORE),
        (
            store_said(
                "alter table cordwood.stamp alter version type varchar", "update cordwood.stamp set version = 'x'"
            ),
            "events.duckdb",
            "it says 'x'",
            RESTORE,
        ),
        (store_said("alter table cordwood.sealed rename first to f"), "events.duckdb", '"first" not found', RESTORE),
        (store_said("insert into cordwood.shape values ('s', ['p'], 'odd')"), "shapes", "'odd'", RESTORE),
        (a_file_instead("journal"), "journal", "File exists", ""),
        (written("redaction.key", "ключ".encode()), "redaction.key", "ascii", "Restore it from a backup"),
    ],
)
def test_what_is_broken_is_told_with_its_place_and_what_to_do(
    sound: Path, tmp_path: Path, harm: Harm, place: str, cause: str, advice: str
) -> None:
    shutil.copytree(sound, tmp_path / "data")
    harm(tmp_path / "data")
    refused = cordwood("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, refused.stdout) == (1, "")
    told = refused.stderr.strip()
    assert told.startswith("cordwood serve: ")
    assert "\n" not in told
    assert [part for part in (place, cause, advice) if part not in told] == [], told


def test_a_client_command_says_the_same_of_a_broken_folder(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "data")
    (tmp_path / "data" / "keys.db").write_bytes(b"no keys" * 999)
    for command in (("keys", "list"), ("backup", str(tmp_path / "backup")), ("quarantine", "list")):
        refused = cordwood(*command, "--data-dir", str(tmp_path / "data"))
        assert (refused.returncode, "keys.db cannot be used: file is not a database" in refused.stderr) == (1, True)
        assert "Traceback" not in refused.stderr


def test_a_start_that_fails_says_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
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


def test_an_older_python_is_told_which_is_needed() -> None:
    older = "import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_module('cordwood', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.startswith("cordwood needs Python 3.11 or newer")) == (1, True)
