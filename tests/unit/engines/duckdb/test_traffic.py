"""Somebody may be alone with the file for a moment, and everybody else waits for a moment at most."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from cordwood.engines.duckdb.storage.file_gate import ExclusiveWait, FileAccess, FileGate

AT_ONCE = ExclusiveWait(0.0, 20.0, 0.1)


@pytest.fixture
def pool() -> "ThreadPoolExecutor":
    return ThreadPoolExecutor(4)


def pass_by(traffic: FileGate, kind: FileAccess, until: threading.Event, begun: threading.Event) -> None:
    with traffic.shared(kind):
        begun.set()
        until.wait(20)


def under_way(pool: ThreadPoolExecutor, traffic: FileGate, kind: FileAccess, until: threading.Event) -> Future[None]:
    begun = threading.Event()
    passing = pool.submit(pass_by, traffic, kind, until, begun)
    assert begun.wait(20)
    return passing


def test_nobody_begins_while_somebody_is_alone(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    done.set()
    begun = threading.Event()
    with traffic.exclusive() as is_alone:
        assert is_alone
        waiting = pool.submit(pass_by, traffic, FileAccess.QUERY, done, begun)
        assert not begun.wait(0.05)
    waiting.result(20)
    assert begun.is_set()


def test_a_seal_under_way_is_waited_for_and_the_next_one_waits(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    sealing = under_way(pool, traffic, FileAccess.FLUSH, done)
    threading.Timer(0.5, done.set).start()
    with traffic.exclusive(AT_ONCE) as is_alone:
        assert is_alone
        assert sealing.done()


def test_a_query_that_lasts_is_not_waited_for(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    lasting = under_way(pool, traffic, FileAccess.QUERY, done)
    with traffic.exclusive(AT_ONCE) as is_alone:
        assert not is_alone
    other = under_way(pool, traffic, FileAccess.QUERY, done)
    done.set()
    for one in (lasting, other):
        one.result(20)


def test_a_moment_that_comes_by_itself_is_taken(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    query = under_way(pool, traffic, FileAccess.QUERY, done)
    threading.Timer(0.5, done.set).start()
    with traffic.exclusive() as is_alone:
        assert is_alone
    query.result(20)


def test_throughout_others_wait_until_it_has_ended(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    done.set()
    begun = threading.Event()
    with traffic.exclusive(until_block_ends=True) as is_alone:
        assert is_alone
        waiting = pool.submit(pass_by, traffic, FileAccess.QUERY, done, begun)
        assert not begun.wait(0.5)
    waiting.result(20)


def test_it_is_known_for_how_long_something_was_being_sealed(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    assert traffic.flushing_seconds == 0.0
    with traffic.shared(FileAccess.QUERY):
        assert traffic.flushing_seconds == 0.0
    seals = [under_way(pool, traffic, FileAccess.FLUSH, done) for _ in range(2)]
    time.sleep(0.3)
    assert 0.3 <= traffic.flushing_seconds < 0.6
    done.set()
    for seal in seals:
        seal.result(20)
    whole = traffic.flushing_seconds
    time.sleep(0.1)
    assert traffic.flushing_seconds == whole


def test_it_is_known_for_how_long_nobody_of_a_kind_has_passed() -> None:
    traffic = FileGate()
    time.sleep(0.2)
    with traffic.shared(FileAccess.FLUSH):
        assert traffic.idle_seconds_of(FileAccess.FLUSH) == traffic.idle_seconds == 0.0
    assert traffic.idle_seconds < 0.2 <= traffic.idle_seconds_of(FileAccess.QUERY)


def test_others_go_on_beside_what_has_begun(pool: ThreadPoolExecutor) -> None:
    traffic, done = FileGate(), threading.Event()
    begun = threading.Event()
    with traffic.exclusive() as is_alone:
        assert is_alone
        query = pool.submit(pass_by, traffic, FileAccess.QUERY, done, begun)
        assert begun.wait(20)
    done.set()
    query.result(20)
