"""Fixture that fails an attack if the isolation check refuses a statement, because the compiler must not emit any such
statement.
"""

from collections.abc import Iterator

import pytest

from tests.isolation_check import forbid_isolation_refusals


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> Iterator[None]:
    with forbid_isolation_refusals():
        yield
