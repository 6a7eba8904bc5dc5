"""Backups: a consistent snapshot of a data folder, streamed as one archive while the service runs."""

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec

from cordwood.engines.engine import Engine, HeldFile
from cordwood.errors import BadBackup
from cordwood.folder import DataFolder
from cordwood.serve.archive import END, Listed, packed

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
        with self.engine.held() as files:
            for file in (*files, *self._beside()):
                yield from packed(file, at, listed.append)
        manifest = msgspec.json.encode(Manifest(FORMAT, self.version, at, tuple(listed)))
        yield from packed(_whole(MANIFEST, manifest), at, listed.append)
        yield END

    def _beside(self) -> Iterator[HeldFile]:
        yield _whole(self.folder.keys_file.name, self.copy_of_keys())
        for secret in self.folder.secrets():
            yield _whole(secret.name, secret.read_bytes())
        for file in self.folder.managed():
            yield _whole(str(file), (self.folder.path / file).read_bytes())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest; raise BadBackup if the backup is truncated or was made by a newer version."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as problem:
        hint = "It was cut off while it was made, or it is none: take another."
        raise BadBackup(f"{folder} is no whole backup: it has no {MANIFEST}.", hint=hint) from problem
    except (OSError, msgspec.DecodeError) as problem:
        raise BadBackup(f"{folder / MANIFEST} cannot be read: {problem}.") from problem
    if manifest.format > FORMAT:
        raise BadBackup(
            f"The backup is of version {manifest.format}; this cordwood restores up to version {FORMAT}.",
            hint=f"cordwood {manifest.cordwood} made it: use that, or a newer one.",
        )
    return manifest


def _whole(name: str, data: bytes) -> HeldFile:
    return HeldFile(name, len(data), lambda: iter((data,)))
