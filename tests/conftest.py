"""Settings and fixtures of all tests: Hypothesis without time limits, checks of lock orders, short garbage collections."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from cordwood.engines.duckdb.storage.locks import check_lock_order
from tests.garbage_collection import exempt_earlier_objects

# How long an example takes depends on the machine and its load.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, each of which visits all tests collected before."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _locks_are_taken_in_order() -> Iterator[None]:
    with check_lock_order():
        yield


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_not_collected_again() -> None:
    exempt_earlier_objects()


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """Let child processes be interrupted: a shell's background job, and so all that it starts, ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
