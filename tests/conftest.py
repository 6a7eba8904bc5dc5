"""Fixtures of all tests: lock order checks of the storage, and short garbage collections."""

import gc
from collections.abc import Iterator

import pytest

from cordwood.engines.duckdb.storage.lock_order import checked_order


@pytest.fixture(scope="session", autouse=True)
def _locks_are_taken_in_order() -> Iterator[None]:
    with checked_order():
        yield


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_not_collected_again() -> None:
    """Exempt the objects of pytest and of earlier modules from garbage collection, as the service does at its start.

    A full collection of all tests and their reports takes more than a second of CPU time, which counts against the
    time limit of whichever compilation it interrupts.
    """
    gc.collect()
    gc.freeze()
