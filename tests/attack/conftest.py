"""A fixture for all tests of this folder: a test fails if the isolation check refuses a statement.

The compiler must never produce a statement that this check refuses, not even for an attack.
"""

from collections.abc import Iterator

import pytest

from tests.isolation_check import forbid_isolation_refusals


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> Iterator[None]:
    with forbid_isolation_refusals():
        yield
