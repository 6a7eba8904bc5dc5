"""Fixtures of the conformance tests: the cases beside the project, which are read in place and never copied."""

from collections.abc import Sequence
from functools import cache

import pytest

from tests.conformance import cases
from tests.conformance.cases import Case
from tests.conformance.outcomes import Clickhouse, DuckDB, Found, Runner


@pytest.fixture(scope="session")
def all_cases() -> Sequence[Case]:
    if not cases.exist():
        pytest.skip("the conformance cases (../shared/conformance) are not beside the project")
    return cases.read()


@cache
def _found(runner: type[Runner]) -> Found:
    opened = runner()
    try:
        return opened.run(cases.read())
    finally:
        opened.close()


@pytest.fixture(params=[DuckDB, Clickhouse], ids=lambda runner: runner.name)
def found(all_cases: Sequence[Case], request: pytest.FixtureRequest) -> Found:
    """Return the outcomes of all cases on one engine; each engine runs once per process."""
    assert all_cases
    return _found(request.param)
