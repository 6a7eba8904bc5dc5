"""The data folder: what stands where in it, who owns it, and how its owner is told things."""

import fcntl
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from cordwood.errors import DataFolderInUse, DataFolderUnusable

_LOCK = "cordwood.lock"
_OUTCOME = "reload.json"


class Owner(msgspec.Struct, frozen=True):
    """The process that serves a folder; `key` is a private key that ends with the process."""

    pid: int
    url: str
    key: str


class Outcome(msgspec.Struct, frozen=True):
    """What became of the last reload."""

    at: float
    ok: bool
    message: str


class DataFolder:
    """A folder of one owner: whoever holds the lock file's lock, which ends with its process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def keys_file(self) -> Path:
        return self.path / "keys.db"

    def secret(self, name: str) -> str:
        """A secret of the folder's own, made when it is first asked for and the same ever after."""
        file = self.path / name
        try:
            if not (file.exists() and file.read_text(encoding="ascii").strip()):
                write_durably(file, secrets.token_hex(32).encode())
            return file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            hint = "Restore it from a backup: what was hidden with it is told apart by it."
            raise DataFolderUnusable(f"The secret {file} cannot be read: {problem}.", hint=hint) from problem

    def secrets(self) -> Sequence[Path]:
        """The files of the secrets that were made so far."""
        return sorted(self.path.glob("*.key"))

    def managed(self) -> Sequence[Path]:
        """The files of streams and endpoints that the service wrote, relative to the folder."""
        found = [self.path / "streams.toml", *self.path.glob("endpoints/*.sql")]
        return sorted(file.relative_to(self.path) for file in found if file.exists())

    @property
    def engine_folder(self) -> Path:
        return self.path

    @property
    def draft(self) -> Path:
        """Where a restore puts its files, until it moves all of them to their places."""
        return self.path / "restoring"

    def require_whole(self) -> None:
        """What a restore brought in part looks like a used folder, and is none."""
        if any(self.draft.glob("*")):
            raise DataFolderUnusable(
                f"A restore into {self.path} was cut off: some of its events are not there.",
                hint="Restore into a new folder: cordwood restore BACKUP --data-dir. Or, to begin without them, delete this one.",
            )

    def is_used(self) -> bool:
        """Whether a service was ever here."""
        return self.keys_file.exists()

    def contents(self) -> Sequence[str]:
        """What stands in the folder, but for its lock."""
        return sorted(place.name for place in self.path.iterdir() if place.name != _LOCK)

    def make(self) -> None:
        """Make the folder, for its user alone, when it is missing."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise DataFolderUnusable(f"The data folder {self.path} cannot be used: {problem.strerror}.") from problem

    @contextmanager
    def owned(self) -> Iterator["Ownership"]:
        """Own the folder, made when it is missing; DataFolderInUse when another process does."""
        with self._open_lock() as lock:
            if not _took_in_time(lock):
                raise DataFolderInUse(self._in_use(), hint="Stop it, or choose another folder with --data-dir.")
            # A folder that was there before may be open to others: what the owner makes in it is not.
            before = os.umask(0o077)
            try:
                yield Ownership(lock)
            finally:
                os.umask(before)
                lock.truncate(0)

    def owner(self) -> Owner | None:
        """The process that serves the folder now, as far as it may be known to the asker."""
        try:
            with (self.path / _LOCK).open("r+", encoding="utf-8") as lock:
                if _took(lock):
                    return None
                return _read_owner(lock.read())
        except (FileNotFoundError, PermissionError):
            return None

    def ask_to_reload(self, owner: Owner, patience_seconds: float = 10.0) -> Outcome | None:
        """Signal the owner and wait for what became of it; None when it does not say in time."""
        before = self._outcome_at()
        os.kill(owner.pid, signal.SIGHUP)
        deadline = time.monotonic() + patience_seconds
        while time.monotonic() < deadline:
            time.sleep(0.02)
            outcome = self.outcome()
            if outcome is not None and outcome.at > before:
                return outcome
        return None

    def outcome(self) -> Outcome | None:
        try:
            return Outcome(**json.loads((self.path / _OUTCOME).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None

    def tell_outcome(self, outcome: Outcome) -> None:
        draft = self.path / f"{_OUTCOME}.new"
        draft.write_text(json.dumps({"at": outcome.at, "ok": outcome.ok, "message": outcome.message}), encoding="utf-8")
        draft.replace(self.path / _OUTCOME)

    def _outcome_at(self) -> float:
        outcome = self.outcome()
        return outcome.at if outcome else 0.0

    def _open_lock(self) -> IO[str]:
        self.make()
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise DataFolderUnusable(f"The data folder {self.path} cannot be used: {problem.strerror}.") from problem
        return os.fdopen(descriptor, "r+", encoding="utf-8")

    def _in_use(self) -> str:
        owner = self.owner()
        who = f"process {owner.pid} at {owner.url}" if owner and owner.pid else "another process"
        return f"The data folder {self.path} is in use by {who}."


class Ownership:
    """What an owner may do: say where it is found."""

    def __init__(self, lock: IO[str]) -> None:
        self._lock = lock

    def announce(self, url: str) -> Owner:
        owner = Owner(os.getpid(), url, "cw_" + secrets.token_urlsafe(32))
        self._lock.seek(0)
        self._lock.truncate()
        json.dump({"pid": owner.pid, "url": owner.url, "key": owner.key}, self._lock)
        self._lock.flush()
        return owner


def _took_in_time(lock: IO[str]) -> bool:
    """Those who only ask for the owner hold the lock for a moment: that is no reason to give up."""
    for _ in range(5):
        if _took(lock):
            return True
        time.sleep(0.02)
    return False


def _read_owner(text: str) -> Owner:
    try:
        return Owner(**json.loads(text))
    except ValueError:
        return Owner(0, "", "")


def _took(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_durably(file: Path, body: bytes) -> None:
    """Replace a file as a whole, readable by its user alone; it is on the disk when this returns."""
    draft = file.with_name(f"{file.name}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
