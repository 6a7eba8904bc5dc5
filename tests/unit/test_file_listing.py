"""The files of folders: unreadable folders, hidden names, and symbolic links."""

from pathlib import Path

import pytest

from cordwood import file_listing
from cordwood.file_listing import find_files_below, list_files
from tests.unreadable_folders import make_unreadable


def found_below(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the found `.sql` files and of what could not be read, relative to the folder."""
    unreadable: list[str] = []
    files = find_files_below(
        folder,
        lambda name: name.endswith(".sql"),
        lambda path, _: unreadable.append(str(path.relative_to(folder))),
    )
    return [str(file.relative_to(folder)) for file in files], unreadable


def write(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")


def test_a_missing_folder_has_no_files_and_an_unreadable_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.sql")
    write(tmp_path / "b.toml")
    assert list_files(tmp_path / "gone", ".sql") == []
    assert list_files(tmp_path, ".sql") == [tmp_path / "a.sql"]
    make_unreadable(monkeypatch, tmp_path)
    with pytest.raises(PermissionError):
        list_files(tmp_path, ".sql")


def test_an_unreadable_subfolder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "closed" / "a.sql")
    write(tmp_path / "open" / "b.sql")
    make_unreadable(monkeypatch, tmp_path / "closed")
    assert found_below(tmp_path) == (["open/b.sql"], ["closed"])


def test_hidden_names_and_rescued_files_are_skipped(tmp_path: Path) -> None:
    for name in (".git/a.sql", ".b.sql", "lost+found/c.sql", "d.sql", "e.d/e.sql"):
        write(tmp_path / name)
    (tmp_path / ".#d.sql").symlink_to("user@host.1234")
    assert found_below(tmp_path) == (["d.sql", "e.d/e.sql"], [])


def test_a_folder_that_is_hidden_itself_is_read(tmp_path: Path) -> None:
    write(tmp_path / ".queries" / "a.sql")
    assert found_below(tmp_path / ".queries") == (["a.sql"], [])


def test_the_files_of_a_mounted_config_map_are_found_once(tmp_path: Path) -> None:
    write(tmp_path / "..2026_01" / "a.sql")
    write(tmp_path / "..2026_01" / "team" / "b.sql")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "a.sql").symlink_to("..data/a.sql")
    (tmp_path / "team").symlink_to("..data/team")
    assert found_below(tmp_path) == (["a.sql", "team/b.sql"], [])


def test_links_to_folders_are_followed_and_each_folder_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "queries" / "z" / "a.sql")
    write(tmp_path / "elsewhere" / "b.sql")
    (tmp_path / "queries" / "again").symlink_to("z")
    (tmp_path / "queries" / "linked").symlink_to("../elsewhere")
    (tmp_path / "queries" / "z" / "up").symlink_to("..")
    (tmp_path / "elsewhere" / "self").symlink_to(".")
    assert found_below(tmp_path / "queries") == (["linked/b.sql", "z/a.sql"], [])


def test_a_link_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    (tmp_path / "team").symlink_to("not-mounted")
    (tmp_path / "circle").symlink_to("circle")
    assert found_below(tmp_path) == ([], ["circle", "team"])


def test_links_lead_to_a_limited_number_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write(tmp_path / "own" / str(number) / "a.sql")
        write(tmp_path / "large" / str(number) / "a.sql")
    monkeypatch.setattr(file_listing, "_MAX_LINKED_FOLDERS", 6)
    (tmp_path / "own" / "large").symlink_to("../large")
    assert len(found_below(tmp_path / "own")[0]) == 10
    monkeypatch.setattr(file_listing, "_MAX_LINKED_FOLDERS", 5)
    assert len(found_below(tmp_path / "own")[1]) == 1
