"""What all tests have in common: the locks of the storage are checked for their order."""

from collections.abc import Iterator

import pytest

from cordwood.engines.duckdb.storage.lock_order import checked_order


@pytest.fixture(scope="session", autouse=True)
def _locks_are_taken_in_order() -> Iterator[None]:
    with checked_order():
        yield
