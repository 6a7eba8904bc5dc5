"""The data folder: its one owning process, the announced URL and key, reload by signal, and secrets."""

import os
import signal
import stat
from pathlib import Path

import pytest

from cordwood.errors import DataFolderInUse, DataFolderUnusable
from cordwood.folder import DataFolder, ReloadOutcome
from tests.unreadable_folders import make_unreadable


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "deep" / "data")


def test_a_missing_folder_is_created_for_its_user_only(folder: DataFolder) -> None:
    with folder.take_ownership():
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_folder_has_one_owner_at_a_time(folder: DataFolder) -> None:
    with folder.take_ownership() as ownership:
        ownership.publish_owner("http://127.0.0.1:4000")
        with (
            pytest.raises(DataFolderInUse, match=rf"process {os.getpid()} at http://127\.0\.0\.1:4000"),
            folder.take_ownership(),
        ):
            pass
    with folder.take_ownership():
        pass


def test_an_owner_without_an_announcement_holds_the_lock(folder: DataFolder) -> None:
    with folder.take_ownership():
        with pytest.raises(DataFolderInUse, match="another process"), folder.take_ownership():
            pass
        owner = folder.find_owner()
        assert owner is not None
        assert (owner.pid, owner.url) == (0, "")


def test_the_owner_s_url_and_key_can_be_read_from_the_folder(folder: DataFolder) -> None:
    with folder.take_ownership() as ownership:
        announced = ownership.publish_owner("http://127.0.0.1:4000")
        assert folder.find_owner() == announced
        assert len(announced.key) > 40
    assert folder.find_owner() is None


def test_the_announcement_is_readable_by_its_user_only(folder: DataFolder) -> None:
    with folder.take_ownership() as ownership:
        ownership.publish_owner("http://127.0.0.1:4000")
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.path.iterdir())


def test_a_missing_folder_has_no_owner(folder: DataFolder) -> None:
    assert folder.find_owner() is None


def test_a_file_cannot_be_a_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match="cannot be used"), DataFolder(tmp_path / "file").take_ownership():
        pass


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300])
def test_the_owner_of_a_path_that_cannot_be_a_folder_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match=r"cannot be used: (Not a directory|File name too long)"):
        DataFolder(tmp_path / name).find_owner()


def test_a_reload_is_requested_by_signal_and_returns_its_outcome(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []

    def owner_reloads(_: int, number: int) -> None:
        signals.append(number)
        folder.publish_reload_outcome(ReloadOutcome(2.0, ok=False, message="a.sql:1:1: No."))

    monkeypatch.setattr(os, "kill", owner_reloads)
    with folder.take_ownership() as ownership:
        owner = ownership.publish_owner("http://127.0.0.1:4000")
        folder.publish_reload_outcome(ReloadOutcome(1.0, ok=True, message="before"))
        assert folder.ask_to_reload(owner) == ReloadOutcome(2.0, ok=False, message="a.sql:1:1: No.")
    assert signals == [signal.SIGHUP]


def test_a_reload_that_is_not_answered_times_out(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)
    with folder.take_ownership() as ownership:
        owner = ownership.publish_owner("http://127.0.0.1:4000")
        assert folder.ask_to_reload(owner, timeout_seconds=0.05) is None


def test_a_secret_is_created_once_for_its_user_only(folder: DataFolder) -> None:
    folder.create()
    secret = folder.read_or_create_secret("redaction.key")
    assert len(secret) == 64
    assert folder.read_or_create_secret("redaction.key") == secret
    assert stat.S_IMODE((folder.path / "redaction.key").stat().st_mode) == 0o600
    assert folder.file_names() == ["redaction.key"]


def test_an_incomplete_secret_file_is_replaced(folder: DataFolder) -> None:
    folder.create()
    (folder.path / "redaction.key").write_text("")
    assert len(folder.read_or_create_secret("redaction.key")) == 64


@pytest.mark.parametrize("name", ["endpoints", "history"])
def test_a_backup_does_not_leave_out_definitions_that_cannot_be_read(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder.create()
    for file in ("endpoints/a.sql", "history/a.json", "streams.toml", "keys.db"):
        (folder.path / file).parent.mkdir(exist_ok=True)
        (folder.path / file).write_text("")
    assert [str(file) for file in folder.definition_files()] == ["endpoints/a.sql", "history/a.json", "streams.toml"]
    make_unreadable(monkeypatch, folder.path / name)
    with pytest.raises(DataFolderUnusable, match=f"{name} in the data folder cannot be used: Permission denied"):
        folder.definition_files()


def test_an_unreadable_folder_of_a_restore_counts_as_an_interrupted_restore(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.restore_folder.mkdir(parents=True)
    folder.require_finished_restore()
    make_unreadable(monkeypatch, folder.restore_folder)
    with pytest.raises(DataFolderUnusable):
        folder.require_finished_restore()
