"""The scheduler of background jobs, which repeats their steps, pauses, reports failures and stops."""

import threading
from collections.abc import Iterator

import pytest

from cordwood.engines.duckdb.storage.background import BackgroundJob, BackgroundScheduler
from tests.waiting import until

HOUR_SECONDS = 3600.0


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def scheduler(reports: list[str]) -> Iterator[BackgroundScheduler]:
    scheduler = BackgroundScheduler(reports.append)
    yield scheduler
    scheduler.close(before_join=lambda: None)


def test_a_step_is_repeated_after_the_pause_that_it_returns(scheduler: BackgroundScheduler) -> None:
    pauses, runs = iter([0.0, 0.01, HOUR_SECONDS]), list[float]()

    def step() -> float:
        runs.append(next(pauses))
        return runs[-1]

    scheduler.start(BackgroundJob("test", step))
    until(lambda: len(runs) == 3)
    assert runs == [0.0, 0.01, HOUR_SECONDS]


def test_a_job_that_is_woken_runs_before_its_pause_ends(scheduler: BackgroundScheduler) -> None:
    ran = threading.Semaphore(0)

    def step() -> float:
        ran.release()
        return HOUR_SECONDS

    job = BackgroundJob("test", step, first_pause=HOUR_SECONDS)
    scheduler.start(job)
    assert not ran.acquire(timeout=0.05)
    job.wake()
    assert ran.acquire(timeout=30)


def test_a_wake_during_a_step_is_not_lost(scheduler: BackgroundScheduler) -> None:
    ran, is_woken = threading.Semaphore(0), threading.Event()

    def step() -> float:
        if not is_woken.is_set():
            is_woken.set()
            job.wake()
        ran.release()
        return HOUR_SECONDS

    job = BackgroundJob("test", step)
    scheduler.start(job)
    assert ran.acquire(timeout=30)
    assert ran.acquire(timeout=30)


def test_one_wake_runs_one_of_several_threads(scheduler: BackgroundScheduler) -> None:
    threads: list[str] = []

    def step() -> float:
        threads.append(threading.current_thread().name)
        return HOUR_SECONDS

    job = BackgroundJob("test", step, threads=3)
    scheduler.start(job)
    until(lambda: len(threads) == 3)
    assert sorted(threads) == ["test-0", "test-1", "test-2"]
    job.wake()
    until(lambda: len(threads) == 4)


def test_a_failure_is_reported_once_a_minute_and_does_not_end_the_job(
    scheduler: BackgroundScheduler, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.engines.duckdb.storage.background._FAILED_STEP_RETRY_SECONDS", 0.0)
    runs: list[None] = []

    def step() -> float:
        runs.append(None)
        if len(runs) < 4:
            raise RuntimeError("a bug")
        return HOUR_SECONDS

    scheduler.start(BackgroundJob("test", step))
    until(lambda: len(runs) == 4)
    assert reports == ["The background job 'test' failed and is tried again: RuntimeError('a bug')"]


def test_close_ends_pauses_and_waits_for_the_current_step() -> None:
    scheduler = BackgroundScheduler(lambda _: None)
    is_running, interrupted, is_finished = threading.Event(), threading.Event(), threading.Event()

    def long_step() -> float:
        is_running.set()
        interrupted.wait(30)
        is_finished.set()
        return 0.0

    scheduler.start(BackgroundJob("pausing", lambda: HOUR_SECONDS))
    scheduler.start(BackgroundJob("working", long_step))
    assert is_running.wait(30)
    scheduler.close(before_join=interrupted.set)
    assert is_finished.is_set()
    assert scheduler.stop_event.is_set()
