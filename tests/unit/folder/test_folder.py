"""One process owns a data folder, others learn who it is, and ask it to reload."""

import os
import signal
import stat
from pathlib import Path

import pytest

from cordwood.errors import DataFolderInUse, DataFolderUnusable
from cordwood.folder import DataFolder, Outcome


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "deep" / "data")


def test_a_folder_is_made_when_it_is_missing_and_belongs_to_its_user_alone(folder: DataFolder) -> None:
    with folder.owned():
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_folder_has_one_owner_at_a_time(folder: DataFolder) -> None:
    with folder.owned() as ownership:
        ownership.announce("http://127.0.0.1:4000")
        with (
            pytest.raises(DataFolderInUse, match=rf"process {os.getpid()} at http://127\.0\.0\.1:4000"),
            folder.owned(),
        ):
            pass
    with folder.owned():
        pass


def test_an_owner_that_said_nothing_yet_owns_the_folder_all_the_same(folder: DataFolder) -> None:
    with folder.owned():
        with pytest.raises(DataFolderInUse, match="another process"), folder.owned():
            pass
        owner = folder.owner()
        assert owner is not None
        assert (owner.pid, owner.url) == (0, "")


def test_who_can_read_the_folder_learns_where_its_owner_is_and_a_key(folder: DataFolder) -> None:
    with folder.owned() as ownership:
        announced = ownership.announce("http://127.0.0.1:4000")
        assert folder.owner() == announced
        assert len(announced.key) > 40
    assert folder.owner() is None


def test_the_announcement_is_for_the_user_alone(folder: DataFolder) -> None:
    with folder.owned() as ownership:
        ownership.announce("http://127.0.0.1:4000")
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.path.iterdir())


def test_a_folder_that_is_not_there_has_no_owner(folder: DataFolder) -> None:
    assert folder.owner() is None


def test_what_is_no_folder_cannot_be_owned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable, match="cannot be used"), DataFolder(tmp_path / "file").owned():
        pass


def test_a_reload_is_asked_for_by_signal_and_answered_with_its_outcome(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def owner_reloads(_: int, number: int) -> None:
        asked.append(number)
        folder.publish_outcome(Outcome(2.0, ok=False, message="a.sql:1:1: No."))

    monkeypatch.setattr(os, "kill", owner_reloads)
    with folder.owned() as ownership:
        owner = ownership.announce("http://127.0.0.1:4000")
        folder.publish_outcome(Outcome(1.0, ok=True, message="before"))
        assert folder.ask_to_reload(owner) == Outcome(2.0, ok=False, message="a.sql:1:1: No.")
    assert asked == [signal.SIGHUP]


def test_an_owner_that_does_not_answer_is_not_waited_for_long(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)
    with folder.owned() as ownership:
        owner = ownership.announce("http://127.0.0.1:4000")
        assert folder.ask_to_reload(owner, timeout_seconds=0.05) is None


def test_a_secret_is_made_once_for_its_user_alone(folder: DataFolder) -> None:
    folder.create()
    made = folder.secret("redaction.key")
    assert len(made) == 64
    assert folder.secret("redaction.key") == made
    assert stat.S_IMODE((folder.path / "redaction.key").stat().st_mode) == 0o600
    assert folder.contents() == ["redaction.key"]


def test_a_secret_that_was_cut_off_while_it_was_made_is_not_taken_for_one(folder: DataFolder) -> None:
    folder.create()
    (folder.path / "redaction.key").write_text("")
    assert len(folder.secret("redaction.key")) == 64
