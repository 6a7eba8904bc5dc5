"""The file gate gives exclusive access for a short time, and makes shared access wait for only a short time."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from cordwood.engines.duckdb.storage.locks import DatabaseAccessLock, ExclusiveWaitLimits, SharedAccessKind

WAIT_WITHOUT_GRACE = ExclusiveWaitLimits(0.0, 20.0, 0.1)


@pytest.fixture
def pool() -> "ThreadPoolExecutor":
    return ThreadPoolExecutor(4)


def hold_shared(
    traffic: DatabaseAccessLock, kind: SharedAccessKind, release: threading.Event, has_begun: threading.Event
) -> None:
    with traffic.shared_access(kind):
        has_begun.set()
        release.wait(20)


def start_shared(
    pool: ThreadPoolExecutor, traffic: DatabaseAccessLock, kind: SharedAccessKind, until: threading.Event
) -> Future[None]:
    begun = threading.Event()
    holding = pool.submit(hold_shared, traffic, kind, until, begun)
    assert begun.wait(20)
    return holding


def test_shared_access_waits_for_exclusive_access_to_end(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    done.set()
    begun = threading.Event()
    with traffic.exclusive_access() as is_alone:
        assert is_alone
        waiting = pool.submit(hold_shared, traffic, SharedAccessKind.QUERY, done, begun)
        assert not begun.wait(0.05)
    waiting.result(20)
    assert begun.is_set()


def test_exclusive_access_waits_for_a_running_flush(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    flushing = start_shared(pool, traffic, SharedAccessKind.FLUSH, done)
    threading.Timer(0.5, done.set).start()
    with traffic.exclusive_access(WAIT_WITHOUT_GRACE) as is_alone:
        assert is_alone
        assert flushing.done()


def test_exclusive_access_gives_up_on_a_long_query(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    long_query = start_shared(pool, traffic, SharedAccessKind.QUERY, done)
    with traffic.exclusive_access(WAIT_WITHOUT_GRACE) as is_alone:
        assert not is_alone
    other = start_shared(pool, traffic, SharedAccessKind.QUERY, done)
    done.set()
    for query in (long_query, other):
        query.result(20)


def test_exclusive_access_is_granted_once_a_query_ends(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    query = start_shared(pool, traffic, SharedAccessKind.QUERY, done)
    threading.Timer(0.5, done.set).start()
    with traffic.exclusive_access() as is_alone:
        assert is_alone
    query.result(20)


def test_shared_access_waits_until_the_exclusive_block_ends_if_asked_to(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    done.set()
    begun = threading.Event()
    with traffic.exclusive_access(until_block_ends=True) as is_alone:
        assert is_alone
        waiting = pool.submit(hold_shared, traffic, SharedAccessKind.QUERY, done, begun)
        assert not begun.wait(0.5)
    waiting.result(20)


def test_the_gate_measures_the_time_of_flushes(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    assert traffic.flushing_seconds == 0.0
    with traffic.shared_access(SharedAccessKind.QUERY):
        assert traffic.flushing_seconds == 0.0
    began = time.monotonic()
    flushes = [start_shared(pool, traffic, SharedAccessKind.FLUSH, done) for _ in range(2)]
    time.sleep(0.3)
    assert 0.3 <= traffic.flushing_seconds <= time.monotonic() - began
    done.set()
    for flush in flushes:
        flush.result(20)
    total_seconds = traffic.flushing_seconds
    time.sleep(0.1)
    assert traffic.flushing_seconds == total_seconds


def test_the_gate_measures_the_idle_time_of_each_kind_of_access() -> None:
    traffic = DatabaseAccessLock()
    time.sleep(0.2)
    with traffic.shared_access(SharedAccessKind.FLUSH):
        assert traffic.idle_seconds_of(SharedAccessKind.FLUSH) == traffic.idle_seconds == 0.0
    idle_seconds = traffic.idle_seconds
    assert traffic.idle_seconds_of(SharedAccessKind.QUERY) >= max(0.2, idle_seconds)


def test_shared_access_resumes_after_a_limited_wait(pool: ThreadPoolExecutor) -> None:
    traffic, done = DatabaseAccessLock(), threading.Event()
    begun = threading.Event()
    with traffic.exclusive_access() as is_alone:
        assert is_alone
        query = pool.submit(hold_shared, traffic, SharedAccessKind.QUERY, done, begun)
        assert begun.wait(20)
    done.set()
    query.result(20)
