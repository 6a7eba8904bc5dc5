"""Backup archives are tar streams. Their members are unpacked unchanged, however the stream is divided into chunks."""

import tarfile
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from cordwood.engines.engine import BackupFile
from cordwood.errors import BadBackup
from cordwood.serve.backup_archive import TAR_END_MARKER, ArchivedFile, pack_member, unpack_archive

SAMPLE_FILES = {"empty": b"", "deep/er/one": b"x", "block": bytes(range(256)) * 2, "large": b"abc" * 100_000}


def archive_chunks(files: dict[str, bytes]) -> tuple[bytes, list[ArchivedFile]]:
    listed: list[ArchivedFile] = []
    backup_files = [BackupFile(name, len(data), partial(iter, (data,))) for name, data in files.items()]
    return b"".join(
        chunk for file in backup_files for chunk in pack_member(file, 0.0, listed.append)
    ) + TAR_END_MARKER, listed


def unpack(chunks: Sequence[bytes], folder: Path) -> list[ArchivedFile]:
    listed: list[ArchivedFile] = []
    unpacking = unpack_archive(folder, listed.append)
    next(unpacking)
    for chunk in chunks:
        unpacking.send(chunk)
    return listed


@pytest.mark.parametrize("size", [1, 7, 511, 512, 513, 100_000, 10**9])
def test_files_are_unpacked_unchanged_for_any_chunk_size(tmp_path: Path, size: int) -> None:
    files = SAMPLE_FILES if size > 1 else {name: data[:600] for name, data in SAMPLE_FILES.items()}
    data, listed = archive_chunks(files)
    assert unpack([data[at : at + size] for at in range(0, len(data), size)], tmp_path) == listed
    assert {name: (tmp_path / name).read_bytes() for name in files} == files


def test_the_archive_is_a_standard_tar() -> None:
    data, _ = archive_chunks(SAMPLE_FILES)
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        assert {member.name: member.size for member in tar} == {
            name: len(content) for name, content in SAMPLE_FILES.items()
        }


@pytest.mark.parametrize("name", ["../out", "/etc/out", "in/../../out"])
def test_a_path_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadBackup, match="it contains the file"):
        unpack([archive_chunks({name: b"x"})[0]], tmp_path)


def test_a_stream_that_is_not_tar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBackup, match="not a tar archive"):
        unpack([b"<html>" * 1000], tmp_path)
