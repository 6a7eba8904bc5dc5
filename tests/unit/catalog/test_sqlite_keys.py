"""The SQLite store of keys: digests, terms, revocation, rotation, and changes by other processes."""

import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.catalog.key_store import hash_secret
from cordwood.catalog.sqlite_keys import SQLiteKeyStore
from cordwood.errors import DataFolderUnusable
from cordwood.model.key import KeyTerms

ALL_TERMS = KeyTerms(
    frozenset({"query", "ingest"}),
    note="for tests",
    pins={"project": "acme"},
    rate_per_second=10.0,
    redact_always=True,
    expires_at=2_000_000_000.0,
)


class ManualClock:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def keys(file: Path, clock: ManualClock) -> Iterator[SQLiteKeyStore]:
    keys = SQLiteKeyStore(file, clock)
    yield keys
    keys.close()


def test_a_key_is_found_by_its_digest_with_all_its_terms(keys: SQLiteKeyStore) -> None:
    new = keys.create(ALL_TERMS)
    caller = keys.find(hash_secret(new.secret))
    assert caller is not None
    assert caller.id == new.key.id
    assert caller.terms == ALL_TERMS
    assert keys.find(hash_secret("cw_other")) is None


def test_keys_are_durable(keys: SQLiteKeyStore, file: Path) -> None:
    new = keys.create(ALL_TERMS)
    reopened = SQLiteKeyStore(file)
    assert reopened.find(hash_secret(new.secret)) is not None
    reopened.close()


def test_secrets_are_not_stored(keys: SQLiteKeyStore, file: Path) -> None:
    secret = keys.create(ALL_TERMS).secret
    written = b"".join(part.read_bytes() for part in file.parent.iterdir())
    assert secret.encode() not in written
    assert secret.removeprefix("cw_").encode() not in written


@pytest.mark.usefixtures("keys")
def test_the_file_is_readable_by_its_user_only(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_secrets_are_unique(keys: SQLiteKeyStore) -> None:
    secrets = {keys.create(ALL_TERMS).secret for _ in range(50)}
    assert len(secrets) == 50
    assert all(len(secret) >= 43 for secret in secrets)


def test_a_revoked_key_ends_at_once_and_its_id_is_not_reused(keys: SQLiteKeyStore) -> None:
    new = keys.create(ALL_TERMS)
    assert keys.revoke(new.key.id)
    assert keys.find(hash_secret(new.secret)) is None
    assert not keys.revoke(new.key.id)
    assert keys.create(ALL_TERMS).key.id != new.key.id


@pytest.mark.parametrize("key_id", ["", "x", "99", "-1", "1e3", "9" * 40])
def test_revoke_and_rotate_ignore_an_unknown_id(keys: SQLiteKeyStore, key_id: str) -> None:
    keys.create(ALL_TERMS)
    assert not keys.revoke(key_id)
    assert keys.rotate(key_id, 0) is None


def test_rotation_keeps_the_terms_and_expires_the_old_key_after_a_grace_period(
    keys: SQLiteKeyStore, clock: ManualClock
) -> None:
    old = keys.create(ALL_TERMS)
    new = keys.rotate(old.key.id, grace_seconds=600)
    assert new is not None
    assert new.key.terms == ALL_TERMS
    caller = keys.find(hash_secret(old.secret))
    assert caller is not None
    assert caller.terms.expires_at == clock.now + 600


def test_a_grace_period_does_not_extend_the_expiry(keys: SQLiteKeyStore, clock: ManualClock) -> None:
    old = keys.create(KeyTerms(frozenset({"query"}), expires_at=clock.now + 5))
    keys.rotate(old.key.id, grace_seconds=600)
    caller = keys.find(hash_secret(old.secret))
    assert caller is not None
    assert caller.terms.expires_at == clock.now + 5


def test_expired_keys_are_not_listed(keys: SQLiteKeyStore, clock: ManualClock) -> None:
    keys.create(KeyTerms(frozenset({"query"}), expires_at=clock.now + 5))
    assert len(keys.active_keys()) == 1
    clock.now += 5
    assert keys.active_keys() == []


def test_changes_by_another_process_are_visible_within_a_second(keys: SQLiteKeyStore, file: Path) -> None:
    other = SQLiteKeyStore(file)
    new = other.create(ALL_TERMS)
    deadline = time.monotonic() + 1.0
    while keys.find(hash_secret(new.secret)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keys.find(hash_secret(new.secret)) is not None
    other.revoke(new.key.id)
    deadline = time.monotonic() + 1.0
    while keys.find(hash_secret(new.secret)) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keys.find(hash_secret(new.secret)) is None
    other.close()


def test_the_time_of_last_use_is_listed_and_durable(keys: SQLiteKeyStore, file: Path, clock: ManualClock) -> None:
    new = keys.create(ALL_TERMS)
    assert keys.active_keys()[0].last_used_at is None
    clock.now += 60
    keys.record_use(new.key.id)
    assert keys.active_keys()[0].last_used_at == clock.now
    keys.write_last_use_times()
    reopened = SQLiteKeyStore(file, clock)
    assert reopened.active_keys()[0].last_used_at == clock.now
    reopened.close()


def test_a_store_is_new_until_its_first_key_was_created(keys: SQLiteKeyStore) -> None:
    assert keys.has_never_had_keys()
    keys.revoke(keys.create(ALL_TERMS).key.id)
    assert not keys.has_never_had_keys()


def test_a_file_that_is_not_sqlite_is_refused(file: Path) -> None:
    file.write_bytes(b"nonsense" * 1000)
    with pytest.raises(DataFolderUnusable, match=r"keys\.db cannot be used"):
        SQLiteKeyStore(file)


def test_ids_count_from_1(keys: SQLiteKeyStore) -> None:
    assert [keys.create(ALL_TERMS).key.id for _ in range(3)] == ["1", "2", "3"]


def test_the_store_is_an_ordinary_sqlite_file(keys: SQLiteKeyStore, file: Path) -> None:
    keys.create(ALL_TERMS)
    with sqlite3.connect(file) as database:
        assert database.execute("select count(*) from keys").fetchone() == (1,)
    database.close()
