"""The data folder: its files, the lock of the process that owns it, and the signal that makes this process reload."""

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
from cordwood.file_listing import list_files

_LOCK_FILE_NAME = "cordwood.lock"
_RELOAD_OUTCOME_FILE_NAME = "reload.json"
_OTHER_FOLDER_HINT = "Choose another one with --data-dir, or make this one writable for the service."


class FolderOwner(msgspec.Struct, frozen=True):
    """The process that owns a data folder. `key` is a private key for requests to it, valid as long as it runs."""

    pid: int
    url: str
    key: str


class ReloadOutcome(msgspec.Struct, frozen=True):
    """The outcome of the owner's last reload: its time, whether it succeeded, and a message."""

    at: float
    ok: bool
    message: str


class DataFolder:
    """The data folder of a service. The process that holds the lock on the folder's lock file owns the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def keys_file(self) -> Path:
        return self.path / "keys.db"

    @property
    def alerts_file(self) -> Path:
        return self.path / "alerts.db"

    def read_or_create_secret(self, name: str) -> str:
        """Return the secret in the file `name` of the folder. The file is created with a new secret on first use."""
        file = self.path / name
        try:
            if not (file.exists() and file.read_text(encoding="ascii").strip()):
                write_durably(file, secrets.token_hex(32).encode())
            return file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            hint = "Restore it from a backup: digests of redacted values depend on it."
            raise DataFolderUnusable(f"The secret {file} cannot be read: {problem}.", hint=hint) from problem

    def secret_files(self) -> Sequence[Path]:
        """Return the paths of the files with secrets that exist in the folder."""
        return self._list_files(self.path, ".key")

    def definition_files(self) -> Sequence[Path]:
        """Return the files in which the service stores endpoints, streams and their versions.

        The paths are relative to the folder.
        """
        files = [
            *(file for file in self._list_files(self.path, ".toml") if file.name == "streams.toml"),
            *self._list_files(self.path / "endpoints", ".sql"),
            *self._list_files(self.path / "history", ".json"),
        ]
        return sorted(file.relative_to(self.path) for file in files)

    def _list_files(self, folder: Path, suffix: str) -> Sequence[Path]:
        """Return the files whose names end in `suffix`; raise DataFolderUnusable if the folder cannot be read."""
        try:
            return list_files(folder, suffix)
        except OSError as problem:
            raise unusable_path_fault(folder, problem) from problem

    @property
    def engine_folder(self) -> Path:
        return self.path

    @property
    def restore_folder(self) -> Path:
        """The folder in which the restore of a backup collects files before it moves them into place."""
        return self.path / "restoring"

    def require_finished_restore(self) -> None:
        """Raise DataFolderUnusable if the restore of a backup into this folder was interrupted."""
        if self._list_files(self.restore_folder, ""):
            raise DataFolderUnusable(
                f"A restore into {self.path} was interrupted: some events are missing.",
                hint="Restore into a new folder: cordwood restore BACKUP --data-dir. Or, to begin without them, delete this one.",
            )

    def has_been_used(self) -> bool:
        """Return whether a service has ever run with this folder."""
        return self.keys_file.exists()

    def file_names(self) -> Sequence[str]:
        """Return the names of the folder's files, except the lock file."""
        return sorted(path.name for path in self.path.iterdir() if path.name != _LOCK_FILE_NAME)

    def create(self) -> None:
        """Create the folder if it is missing, with mode 0700."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise self._unusable_fault(problem) from problem

    @contextmanager
    def take_ownership(self) -> Iterator["FolderOwnership"]:
        """Create the folder if it is missing, and hold its lock; raise DataFolderInUse if another process owns it."""
        with self._open_lock_file() as lock:
            if not _try_lock_repeatedly(lock):
                raise DataFolderInUse(self._in_use_message(), hint="Stop it, or choose another folder with --data-dir.")
            # Without this umask, other users who can read the folder could read the files that this process creates.
            previous_umask = os.umask(0o077)
            try:
                yield FolderOwnership(lock)
            finally:
                os.umask(previous_umask)
                lock.truncate(0)

    def find_owner(self) -> FolderOwner | None:
        """Return the process that owns the folder; None if no process does, or if the lock file cannot be read.

        Raise DataFolderUnusable if the path cannot be a data folder, for example because it is a file.
        """
        try:
            with (self.path / _LOCK_FILE_NAME).open("r+", encoding="utf-8") as lock:
                if _try_lock(lock):
                    return None
                return _read_owner(lock.read())
        except (FileNotFoundError, PermissionError):
            return None
        except OSError as problem:
            raise self._unusable_fault(problem) from problem

    def ask_to_reload(self, owner: FolderOwner, timeout_seconds: float = 10.0) -> ReloadOutcome | None:
        """Signal the owner to reload, and wait for the outcome of the reload; return None on a timeout."""
        previous_at = self._last_reload_time()
        os.kill(owner.pid, signal.SIGHUP)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            time.sleep(0.02)
            outcome = self.last_reload_outcome()
            if outcome is not None and outcome.at > previous_at:
                return outcome
        return None

    def last_reload_outcome(self) -> ReloadOutcome | None:
        try:
            return ReloadOutcome(**json.loads((self.path / _RELOAD_OUTCOME_FILE_NAME).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None

    def publish_reload_outcome(self, outcome: ReloadOutcome) -> None:
        temporary = self.path / f"{_RELOAD_OUTCOME_FILE_NAME}.new"
        temporary.write_text(
            json.dumps({"at": outcome.at, "ok": outcome.ok, "message": outcome.message}), encoding="utf-8"
        )
        temporary.replace(self.path / _RELOAD_OUTCOME_FILE_NAME)

    def _last_reload_time(self) -> float:
        outcome = self.last_reload_outcome()
        return outcome.at if outcome else 0.0

    def _open_lock_file(self) -> IO[str]:
        self.create()
        try:
            descriptor = os.open(self.path / _LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise self._unusable_fault(problem) from problem
        return os.fdopen(descriptor, "r+", encoding="utf-8")

    def _unusable_fault(self, problem: OSError) -> DataFolderUnusable:
        reason = "there is a file of this name" if isinstance(problem, FileExistsError) else problem.strerror
        return DataFolderUnusable(f"The data folder {self.path} cannot be used: {reason}.", hint=_OTHER_FOLDER_HINT)

    def _in_use_message(self) -> str:
        owner = self.find_owner()
        owner_text = f"process {owner.pid} at {owner.url}" if owner and owner.pid else "another process"
        return f"The data folder {self.path} is in use by {owner_text}."


class FolderOwnership:
    """The lock on a data folder, held by the process that owns the folder.

    In the lock file, the owner publishes its process id, its URL and a private key.
    """

    def __init__(self, lock: IO[str]) -> None:
        self._lock_file = lock

    def publish_owner(self, url: str) -> FolderOwner:
        owner = FolderOwner(os.getpid(), url, "cw_" + secrets.token_urlsafe(32))
        self._lock_file.seek(0)
        self._lock_file.truncate()
        json.dump({"pid": owner.pid, "url": owner.url, "key": owner.key}, self._lock_file)
        self._lock_file.flush()
        return owner


def unusable_path_fault(path: Path, problem: OSError) -> DataFolderUnusable:
    """Return the error for a file or a folder, in the data folder, that the service may not read or write."""
    hint = "Give it to the service's user, with chown and chmod."
    return DataFolderUnusable(f"{path} in the data folder cannot be used: {problem.strerror}.", hint=hint)


def _try_lock_repeatedly(lock: IO[str]) -> bool:
    """Try to take the lock several times.

    The first attempts may fail because another process that calls `DataFolder.owner` holds the lock for a moment.
    """
    for _ in range(5):
        if _try_lock(lock):
            return True
        time.sleep(0.02)
    return False


def _read_owner(text: str) -> FolderOwner:
    try:
        return FolderOwner(**json.loads(text))
    except ValueError:
        return FolderOwner(0, "", "")


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_durably(file: Path, body: bytes) -> None:
    """Replace a file atomically and durably, with mode 0600."""
    temporary = file.with_name(f"{file.name}.new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that new, renamed and removed files in it are durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
