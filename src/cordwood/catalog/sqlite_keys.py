"""The key store in an SQLite file, which the running service and commands on the same machine share."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from cordwood.catalog.key_store import NewKey, hash_secret, make_secret
from cordwood.errors import DataFolderUnusable, OutOfDisk
from cordwood.model.key import ApiKey, KeyTerms, split_scopes

_CREATE_KEYS_TABLE_SQL = """
create table if not exists keys (
  id integer primary key autoincrement,
  digest text not null unique,
  scopes text not null,
  note text not null default '',
  pins text not null default '{}',
  rate_per_second real,
  redact_always integer not null default 0,
  created_at real not null,
  expires_at real,
  last_used_at real
)
"""
_KEY_COLUMNS_SQL = (
    "id, digest, scopes, note, pins, rate_per_second, redact_always, created_at, expires_at, last_used_at"
)
_DAMAGED_STORE_HINT = "Restore it from a backup, or move it away: then two new keys are created at the next start."
# The minimum time between two checks of the file for changes by another process.
_RELOAD_CHECK_INTERVAL_SECONDS = 0.25


class SQLiteKeyStore:
    """A key store that keeps all keys in memory, and checks up to four times a second whether the file has changed."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._wall_clock_seconds = clock
        self._lock = threading.RLock()
        self._unwritten_last_use_times: dict[str, float] = {}
        self._keys_by_digest: dict[str, ApiKey] = {}
        self._loaded_data_version = -1
        self._change_checked_monotonic_seconds = time.monotonic()
        try:
            self._database = _open_database(file)
            self._load_keys()
        except (sqlite3.Error, OSError, ValueError, TypeError) as problem:
            # TypeError and ValueError occur too: in a damaged file, a value may have any type, and JSON may be invalid.
            raise DataFolderUnusable(
                f"The key store {file} cannot be used: {problem}.", hint=_DAMAGED_STORE_HINT
            ) from problem

    def find(self, secret_digest: str) -> ApiKey | None:
        with self._lock:
            self._reload_if_changed()
            return self._keys_by_digest.get(secret_digest)

    def active_keys(self) -> Sequence[ApiKey]:
        with self._lock:
            self._load_keys()
            now = self._wall_clock_seconds()
            return [self._add_last_use_time(key) for key in self._keys_by_digest.values() if not _is_expired(key, now)]

    def create(self, terms: KeyTerms) -> NewKey:
        with self._write_transaction() as database:
            return _insert_key(database, terms, self._wall_clock_seconds())

    def revoke(self, key_id: str) -> bool:
        with self._write_transaction() as database:
            return database.execute("delete from keys where id = ?", (_row_id_of_key(key_id),)).rowcount > 0

    def rotate(self, key_id: str, grace_seconds: float) -> NewKey | None:
        with self._write_transaction() as database:
            old = next((key for key in self.active_keys() if key.id == key_id), None)
            if old is None:
                return None
            new = _insert_key(database, old.terms, self._wall_clock_seconds())
            _set_key_expiry(database, old, self._wall_clock_seconds() + grace_seconds)
            return new

    def copy_database(self) -> bytes:
        with self._lock, closing(sqlite3.connect(":memory:")) as copy:
            self._database.backup(copy)
            return copy.serialize()

    def record_use(self, key_id: str) -> None:
        with self._lock:
            self._unwritten_last_use_times[key_id] = self._wall_clock_seconds()

    def write_last_use_times(self) -> None:
        """Write the times at which keys were last used to the file.

        Call this in a thread, because it waits for the disk.
        """
        with self._lock:
            uses = [(used_at, _row_id_of_key(key_id)) for key_id, used_at in self._unwritten_last_use_times.items()]
            with _translate_write_errors(), self._database:
                self._database.executemany("update keys set last_used_at = ? where id = ?", uses)
            self._unwritten_last_use_times.clear()

    def has_never_had_keys(self) -> bool:
        """Return whether no key was ever created, not even one that has been revoked since."""
        with self._lock:
            return self._database.execute("select 1 from sqlite_sequence where name = 'keys'").fetchone() is None

    def close(self) -> None:
        with self._lock:
            # A failure to write the times of last use must not prevent a normal shutdown.
            with suppress(OutOfDisk):
                self.write_last_use_times()
            self._database.close()

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            with _translate_write_errors(), self._database:
                self._database.execute("begin immediate")
                yield self._database
            self._load_keys()

    def _reload_if_changed(self) -> None:
        now = time.monotonic()
        if now - self._change_checked_monotonic_seconds < _RELOAD_CHECK_INTERVAL_SECONDS:
            return
        self._change_checked_monotonic_seconds = now
        if _data_version(self._database) != self._loaded_data_version:
            self._load_keys()

    def _load_keys(self) -> None:
        self._loaded_data_version = _data_version(self._database)
        rows = self._database.execute(f"select {_KEY_COLUMNS_SQL} from keys order by id")  # noqa: S608 - names of our own
        self._keys_by_digest = {row[1]: _key_from_row(row) for row in rows}

    def _add_last_use_time(self, key: ApiKey) -> ApiKey:
        return msgspec.structs.replace(key, last_used_at=self._unwritten_last_use_times.get(key.id, key.last_used_at))


@contextmanager
def _translate_write_errors() -> Iterator[None]:
    """Replace SQLite's error for a locked or read-only file, or a full disk, by OutOfDisk."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        raise OutOfDisk(
            f"The key store cannot be written: {problem}.",
            hint="Free space on the disk of the data folder, or make it writable again.",
            retry_after=30,
        ) from problem


def _open_database(file: Path) -> sqlite3.Connection:
    # Create the file before SQLite opens it, so that no other user can read it, even at the start.
    file.touch(mode=0o600)
    database = sqlite3.connect(file, check_same_thread=False, timeout=5.0)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute(_CREATE_KEYS_TABLE_SQL)
    return database


def _data_version(database: sqlite3.Connection) -> int:
    version: int = database.execute("pragma data_version").fetchone()[0]
    return version


def _insert_key(database: sqlite3.Connection, terms: KeyTerms, now: float) -> NewKey:
    secret = make_secret()
    inserted = database.execute(
        "insert into keys (digest, scopes, note, pins, rate_per_second, redact_always, created_at, expires_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            hash_secret(secret),
            " ".join(sorted(terms.scopes)),
            terms.note,
            json.dumps(dict(terms.pins)),
            terms.rate_per_second,
            terms.redact_always,
            now,
            terms.expires_at,
        ),
    )
    return NewKey(ApiKey(str(inserted.lastrowid), terms, now), secret)


def _set_key_expiry(database: sqlite3.Connection, key: ApiKey, end_at: float) -> None:
    expires_at = end_at if key.terms.expires_at is None else min(end_at, key.terms.expires_at)
    database.execute("update keys set expires_at = ? where id = ?", (expires_at, _row_id_of_key(key.id)))


def _key_from_row(row: tuple[int, str, str, str, str, float | None, int, float, float | None, float | None]) -> ApiKey:
    key_id, _, scopes, note, pins, rate, redact, created_at, expires_at, last_used_at = row
    terms = KeyTerms(frozenset(split_scopes(scopes)), note, json.loads(pins), rate, bool(redact), expires_at)
    return ApiKey(str(key_id), terms, created_at, last_used_at)


def _is_expired(key: ApiKey, now: float) -> bool:
    return key.terms.expires_at is not None and key.terms.expires_at <= now


def _row_id_of_key(key_id: str) -> int:
    return int(key_id) if key_id.isascii() and key_id.isdigit() and len(key_id) < 19 else -1
