"""Run every attack under a watch of the isolation check: the compiler must not emit a statement that it refuses."""

from collections.abc import Iterator

import pytest

from tests.isolation_check import forbid_isolation_refusals


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> Iterator[None]:
    with forbid_isolation_refusals():
        yield
