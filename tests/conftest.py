"""Settings and fixtures of all tests: no Hypothesis deadlines, a check of lock order, short garbage collections."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from cordwood.engines.duckdb.storage.locks import enable_lock_order_checks
from tests.garbage_collection import exempt_earlier_objects

# Hypothesis needs no deadline, because the duration of an example depends on the machine and its load.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while tests are collected, because each collection would visit all earlier tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _locks_are_taken_in_order() -> Iterator[None]:
    with enable_lock_order_checks():
        yield


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_not_collected_again() -> None:
    exempt_earlier_objects()


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """Let child processes handle SIGINT, which they inherit as ignored if a shell runs the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
