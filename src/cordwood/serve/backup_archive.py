"""Backups: a consistent snapshot of a data folder, streamed as one tar archive while the service runs."""

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

_BLOCK_BYTES = 512
END = bytes(2 * _BLOCK_BYTES)


class Listed(msgspec.Struct, frozen=True):
    """An archived file, with the digest of its content."""

    name: str
    size: int
    sha256: str


Keep = Callable[[Listed], None]


def packed(file: BackupFile, at: float, keep: Keep) -> Iterator[bytes]:
    """Yield the tar member of the file; call `keep` after its last byte."""
    member = tarfile.TarInfo(file.name)
    member.size, member.mtime, member.mode = file.size, int(at), 0o600
    yield member.tobuf(tarfile.GNU_FORMAT)
    digest = hashlib.sha256()
    for piece in file.chunks():
        digest.update(piece)
        yield piece
    if file.size % _BLOCK_BYTES:
        yield bytes(-file.size % _BLOCK_BYTES)
    keep(Listed(file.name, file.size, digest.hexdigest()))


def unpacking(folder: Path, keep: Keep) -> Generator[None, bytes, None]:
    """Return a generator that is sent the bytes of a tar and writes its files; `keep` is called after each fsync."""
    held = bytearray()
    while True:
        while len(held) < _BLOCK_BYTES:
            held += yield
        header = bytes(held[:_BLOCK_BYTES])
        del held[:_BLOCK_BYTES]
        if any(header):
            member = _member(header)
            keep((yield from _unpacked(place_below(folder, member.name), member, held)))
            while len(held) < -member.size % _BLOCK_BYTES:
                held += yield
            del held[: -member.size % _BLOCK_BYTES]


def _unpacked(place: Path, member: tarfile.TarInfo, held: bytearray) -> Generator[None, bytes, Listed]:
    digest, left = hashlib.sha256(), member.size
    place.parent.mkdir(parents=True, exist_ok=True)
    with new_file(place) as out:
        while left:
            if not held:
                held += yield
            piece = bytes(held[:left])
            del held[: len(piece)]
            out.write(piece)
            digest.update(piece)
            left -= len(piece)
        out.flush()
        os.fsync(out.fileno())
    return Listed(member.name, member.size, digest.hexdigest())


def new_file(place: Path) -> BinaryIO:
    """Create a file with mode 0600; raise FileExistsError if it exists."""
    return os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _member(header: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except tarfile.TarError as problem:
        raise BadBackup("This is not a backup: it is not a tar archive.") from problem


def place_below(folder: Path, name: str) -> Path:
    """Return the path of an archived file below the folder; raise BadBackup for a path that leaves it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BadBackup(f"This is not a backup: it contains the file {name!r}.")
    return folder / path


# Increment it when an older version can no longer restore the archive.
FORMAT = 1
MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    """The list of files in a backup. It is the last file of the archive: an archive without it is truncated."""

    format: int
    cordwood: str
    at: float
    files: tuple[Listed, ...]


class Backups(msgspec.Struct, frozen=True):
    """Makes backups of the engine's events and of the keys, secrets and managed files in the data folder."""

    engine: Engine
    copy_of_keys: Callable[[], bytes]
    folder: DataFolder
    version: str

    def archive(self) -> Generator[bytes, None, None]:
        """Yield a tar archive in chunks: the files of one snapshot, then the manifest."""
        listed: list[Listed] = []
        at = time.time()
        with self.engine.snapshot() as files:
            for file in (*files, *self._beside()):
                yield from packed(file, at, listed.append)
        manifest = msgspec.json.encode(Manifest(FORMAT, self.version, at, tuple(listed)))
        yield from packed(_whole(MANIFEST, manifest), at, listed.append)
        yield END

    def _beside(self) -> Iterator[BackupFile]:
        yield _whole(self.folder.keys_file.name, self.copy_of_keys())
        for secret in self.folder.secrets():
            yield _whole(secret.name, secret.read_bytes())
        for file in self.folder.managed():
            # A definition may be deleted meanwhile.
            with suppress(FileNotFoundError):
                yield _whole(str(file), (self.folder.path / file).read_bytes())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest; raise BadBackup if the backup is truncated or was made by a newer version."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as problem:
        hint = "It is truncated, or not a backup: use another one."
        raise BadBackup(f"{folder} is not a complete backup: it has no {MANIFEST}.", hint=hint) from problem
    except (OSError, msgspec.DecodeError) as problem:
        raise BadBackup(f"{folder / MANIFEST} cannot be read: {problem}.") from problem
    if manifest.format > FORMAT:
        raise BadBackup(
            f"The backup is of version {manifest.format}; this cordwood restores up to version {FORMAT}.",
            hint=f"cordwood {manifest.cordwood} made it: use that, or a newer one.",
        )
    return manifest


def _whole(name: str, data: bytes) -> BackupFile:
    return BackupFile(name, len(data), lambda: iter((data,)))
