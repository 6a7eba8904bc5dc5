"""Ordered locks refuse acquisition in the wrong order, and otherwise behave like the locks that they wrap."""

import threading

import pytest

from cordwood.engines.duckdb.storage.locks import (
    DatabaseAccessLock,
    LockOrderError,
    LockRank,
    SharedAccessKind,
    ordered_condition,
    ordered_lock,
)


def test_a_lock_that_comes_earlier_is_refused_while_a_later_one_is_held() -> None:
    first, later = ordered_lock(LockRank.COMPACTION), ordered_lock(LockRank.APPEND)
    with first, later:
        pass
    with later, pytest.raises(LockOrderError, match="COMPACTION was taken while APPEND was held"), first:
        pass
    with first:
        pass


def test_access_to_the_file_counts_as_a_lock() -> None:
    gate = DatabaseAccessLock()
    for access in (gate.shared_access(SharedAccessKind.QUERY), gate.exclusive_access()):
        with ordered_lock(LockRank.STREAM_STATE), pytest.raises(LockOrderError, match="DATABASE_ACCESS"), access:
            pass


def test_a_condition_may_be_held_twice_and_holds_nothing_while_it_waits() -> None:
    changed, log = ordered_condition(LockRank.STREAM_STATE), ordered_lock(LockRank.WRITE_AHEAD_LOG)
    is_changed = False

    def change() -> None:
        nonlocal is_changed
        with changed:
            is_changed = True
            changed.notify_all()

    other = threading.Thread(target=change)
    with changed, changed:
        other.start()
        assert changed.wait_for(lambda: is_changed, 10)
        with log, pytest.raises(LockOrderError), ordered_lock(LockRank.MEMTABLE_FILL):
            pass
    other.join()
    with ordered_lock(LockRank.COMPACTION):
        pass
