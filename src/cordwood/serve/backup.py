"""A backup: all that a data folder holds at one moment, as one archive that leaves while the service goes on."""

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec

from cordwood.engines.engine import Engine, HeldFile
from cordwood.errors import BadBackup
from cordwood.folder import DataFolder
from cordwood.serve.archive import END, Listed, packed

# Raised by one whenever an older cordwood could no longer restore a backup.
FORMAT = 1
MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    """What belongs to a backup. It is written last: what has none was cut off."""

    format: int
    cordwood: str
    at: float
    files: tuple[Listed, ...]


class Backups(msgspec.Struct, frozen=True):
    """Makes backups of an engine's events, and of the keys, secrets and written files beside them."""

    engine: Engine
    copy_of_keys: Callable[[], bytes]
    folder: DataFolder
    version: str

    def archive(self) -> Generator[bytes, None, None]:
        """A tar, piece by piece: the files of one moment, then the manifest."""
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
    """BadBackup when the folder holds no whole backup, or one of a newer version."""
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
