"""Fixtures of the conformance tests, whose cases are in a folder outside the project."""

from collections.abc import Sequence
from functools import cache

import pytest

from tests.conformance import cases
from tests.conformance.cases import Case
from tests.conformance.outcomes import ClickHouse, DuckDB, EngineOutcomes, Runner


@pytest.fixture(scope="session")
def all_cases() -> Sequence[Case]:
    if not cases.has_cases():
        pytest.skip("the conformance cases (../shared/conformance) are not beside the project")
    return cases.read_cases()


@cache
def _run_all_cases(runner: type[Runner]) -> EngineOutcomes:
    opened = runner()
    try:
        return opened.run(cases.read_cases())
    finally:
        opened.close()


@pytest.fixture(params=[DuckDB, ClickHouse], ids=lambda runner: runner.name)
def engine_outcomes(all_cases: Sequence[Case], request: pytest.FixtureRequest) -> EngineOutcomes:
    """Return the outcomes of all cases on one engine. Each process runs the cases only once for each engine."""
    assert all_cases
    return _run_all_cases(request.param)
