"""The guide's page on upgrades: an older version refuses a newer data folder or backup, and changes nothing."""

import hashlib
import json
import re
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.storage.manifest import STORE_FORMAT_VERSION
from cordwood.serve.backup_archive import ARCHIVE_FORMAT_VERSION
from tests.journey.test_cli_clients import cordwood

GUIDE_TEXT = (Path(__file__).parents[2] / "docs" / "guide" / "upgrades.md").read_text()


def message_on_page(beginning: str) -> str:
    """Return the message on the guide's page that begins with this text."""
    match = re.search(rf"^```text\n({re.escape(beginning)}.*)\n```$", GUIDE_TEXT, re.MULTILINE)
    assert match is not None
    return match[1]


def file_digests(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != "cordwood.lock")
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a stopped service."""
    place = tmp_path_factory.mktemp("upgrades")
    (place / "events.ndjson").write_text('{"id": "one", "project": "p"}\n')
    data_folder = place / "data"
    result = cordwood(
        "import", str(place / "events.ndjson"), "--stream", "postgres.logs", "--data-dir", str(data_folder)
    )
    assert result.returncode == 0, result.stderr
    return data_folder


def test_a_backup_of_a_newer_version_is_refused_with_the_quoted_message(data_folder: Path, tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    assert cordwood("backup", str(backup), "--data-dir", str(data_folder)).returncode == 0
    manifest = json.loads((backup / "manifest.json").read_text())
    (backup / "manifest.json").write_text(json.dumps({**manifest, "format": ARCHIVE_FORMAT_VERSION + 1}))
    refused = cordwood("restore", str(backup), "--data-dir", str(restored))
    assert refused.returncode == 1
    assert message_on_page("The backup is of version") in refused.stderr
    assert not restored.exists() or list(restored.iterdir()) == []


def test_a_newer_folder_is_refused_with_the_quoted_message_and_unchanged(data_folder: Path) -> None:
    with duckdb.connect(str(data_folder / "events.duckdb")) as store:
        store.execute(f"update cordwood.stamp set version = {STORE_FORMAT_VERSION + 1}")
    before = file_digests(data_folder)
    refused = cordwood("serve", "--port", "0", "--data-dir", str(data_folder))
    assert (refused.returncode, refused.stderr.strip()) == (1, message_on_page("cordwood serve: The data folder"))
    assert file_digests(data_folder) == before
