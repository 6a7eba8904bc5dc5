"""Backups: a consistent snapshot of a data folder, streamed as a tar archive while the service runs."""

import hashlib
import os
import tarfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from cordwood.engines.engine import BackupFile, Engine
from cordwood.errors import BadBackup
from cordwood.folder import DataFolder

_TAR_BLOCK_BYTES = 512
TAR_END_MARKER = bytes(2 * _TAR_BLOCK_BYTES)


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file in an archive, with the digest of its content."""

    name: str
    size: int
    sha256: str


ArchivedFileCallback = Callable[[ArchivedFile], None]


def pack_member(file: BackupFile, modified_at: float, on_file: ArchivedFileCallback) -> Iterator[bytes]:
    """Yield the bytes of a file as a member of a tar archive; then call `on_file` with the file's size and digest."""
    member = tarfile.TarInfo(file.name)
    member.size, member.mtime, member.mode = file.size, int(modified_at), 0o600
    yield member.tobuf(tarfile.GNU_FORMAT)
    digest = hashlib.sha256()
    for chunk in file.read_chunks():
        digest.update(chunk)
        yield chunk
    if file.size % _TAR_BLOCK_BYTES:
        yield bytes(-file.size % _TAR_BLOCK_BYTES)
    on_file(ArchivedFile(file.name, file.size, digest.hexdigest()))


def unpack_archive(folder: Path, on_file: ArchivedFileCallback) -> Generator[None, bytes, None]:
    """Return a generator that unpacks a tar archive into a folder. Send it the bytes of the archive in chunks.

    `on_file` is called after each file was written.
    """
    buffer = bytearray()
    while True:
        while len(buffer) < _TAR_BLOCK_BYTES:
            buffer += yield
        header = bytes(buffer[:_TAR_BLOCK_BYTES])
        del buffer[:_TAR_BLOCK_BYTES]
        if any(header):
            member = _parse_member(header)
            on_file((yield from _unpack_member(resolve_path_in_folder(folder, member.name), member, buffer)))
            while len(buffer) < -member.size % _TAR_BLOCK_BYTES:
                buffer += yield
            del buffer[: -member.size % _TAR_BLOCK_BYTES]


def _unpack_member(path: Path, member: tarfile.TarInfo, buffer: bytearray) -> Generator[None, bytes, ArchivedFile]:
    digest, remaining = hashlib.sha256(), member.size
    path.parent.mkdir(parents=True, exist_ok=True)
    with create_private_file(path) as out:
        while remaining:
            if not buffer:
                buffer += yield
            chunk = bytes(buffer[:remaining])
            del buffer[: len(chunk)]
            out.write(chunk)
            digest.update(chunk)
            remaining -= len(chunk)
        out.flush()
        os.fsync(out.fileno())
    return ArchivedFile(member.name, member.size, digest.hexdigest())


def create_private_file(path: Path) -> BinaryIO:
    """Create a file with mode 0600; raise FileExistsError if the file exists already."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _parse_member(header: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except tarfile.TarError as problem:
        raise BadBackup("This is not a backup: it is not a tar archive.") from problem


def resolve_path_in_folder(folder: Path, name: str) -> Path:
    """Return the path of an archived file in the folder; raise BadBackup if the path leads outside of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BadBackup(f"This is not a backup: it contains the file {name!r}.")
    return folder / path


# The version of the archive format. Increment it when older versions of cordwood can no longer restore the archive.
ARCHIVE_FORMAT_VERSION = 1
MANIFEST_FILE_NAME = "manifest.json"


class BackupManifest(msgspec.Struct, frozen=True):
    """The list of the files in a backup.

    The manifest is the last file of an archive, so an archive without a manifest is truncated.
    """

    format: int
    cordwood: str
    at: float
    files: tuple[ArchivedFile, ...]


class BackupService(msgspec.Struct, frozen=True):
    """Makes backups: the engine's events, and the keys, alerts, secrets and managed files of the data folder."""

    engine: Engine
    copy_keys: Callable[[], bytes]
    # `copy_alerts` returns None if there is no store of alerts.
    copy_alerts: Callable[[], bytes | None]
    folder: DataFolder
    cordwood_version: str

    def archive_chunks(self) -> Generator[bytes, None, None]:
        """Yield a tar archive in chunks: the files of one snapshot, then the manifest."""
        archived: list[ArchivedFile] = []
        created_at = time.time()
        with self.engine.open_backup_snapshot() as files:
            for file in (*files, *self._data_folder_files()):
                yield from pack_member(file, created_at, archived.append)
        manifest = msgspec.json.encode(
            BackupManifest(ARCHIVE_FORMAT_VERSION, self.cordwood_version, created_at, tuple(archived))
        )
        yield from pack_member(_backup_file_of(MANIFEST_FILE_NAME, manifest), created_at, archived.append)
        yield TAR_END_MARKER

    def _data_folder_files(self) -> Iterator[BackupFile]:
        yield _backup_file_of(self.folder.keys_file.name, self.copy_keys())
        alerts = self.copy_alerts()
        if alerts is not None:
            yield _backup_file_of(self.folder.alerts_file.name, alerts)
        for secret in self.folder.secret_files():
            yield _backup_file_of(secret.name, secret.read_bytes())
        for file in self.folder.definition_files():
            # A managed file may have been deleted since the list of managed files was made.
            with suppress(FileNotFoundError):
                yield _backup_file_of(str(file), (self.folder.path / file).read_bytes())


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest; raise BadBackup if the backup is truncated or was made by a newer version."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_FILE_NAME).read_bytes(), type=BackupManifest)
    except FileNotFoundError as problem:
        hint = "It is truncated, or not a backup: use another one."
        raise BadBackup(f"{folder} is not a complete backup: it has no {MANIFEST_FILE_NAME}.", hint=hint) from problem
    except (OSError, msgspec.DecodeError) as problem:
        raise BadBackup(f"{folder / MANIFEST_FILE_NAME} cannot be read: {problem}.") from problem
    if manifest.format > ARCHIVE_FORMAT_VERSION:
        raise BadBackup(
            f"The backup is of version {manifest.format}; this cordwood restores up to version {ARCHIVE_FORMAT_VERSION}.",
            hint=f"cordwood {manifest.cordwood} made it: use that, or a newer one.",
        )
    return manifest


def _backup_file_of(name: str, data: bytes) -> BackupFile:
    return BackupFile(name, len(data), lambda: iter((data,)))
