"""A crash of the compiler is a fault with an incident id.

It is reported to the operator once for each location in the code, without the query.
"""

import msgspec
import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadEndpointFile, CompilerFailed, QueryUnsupported
from cordwood.observe.observation import BugFound
from cordwood.serve.query_request import QueryLanguage, SandboxQuery
from cordwood.sql.stages import LoweredQuery, ResolvedQuery
from tests.fakes.engines import ScriptedEngine
from tests.unit.serve.harness import CALLER, WARMED_ENDPOINT, ServeHarness, make_request, run_with_harness


class FailingTarget(DuckDBTarget):
    """A target whose lowering fails for every tree."""

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        raise LookupError(resolved.query_text)


def failing_harness() -> ServeHarness:
    engine = ScriptedEngine()
    engine.compile_target = FailingTarget()
    return ServeHarness(engine=engine)


def reported_bugs(harness: ServeHarness) -> list[BugFound]:
    return [note for note in harness.notes.all if isinstance(note, BugFound)]


def test_the_author_gets_an_incident_id_and_the_operator_the_trace() -> None:
    async def test(harness: ServeHarness) -> None:
        with pytest.raises(CompilerFailed, match="The compiler broke on this query") as refused:
            await harness.answers.answer(make_request())
        (reported,) = reported_bugs(harness)
        assert refused.value.code == "bug.compiler"
        assert refused.value.hint == f"Rewrite the query, and report the incident {reported.incident}."
        assert reported.incident.startswith("compiler-")
        assert reported.trace.endswith("LookupError")
        assert "in lower" in reported.trace

    run_with_harness(test, failing_harness())


def test_an_endpoint_that_can_no_longer_be_read_is_described_without_columns() -> None:
    async def test(harness: ServeHarness) -> None:
        unreadable = msgspec.structs.replace(WARMED_ENDPOINT, sql="no query", revision="revision-2")
        with pytest.raises(BadEndpointFile):
            await harness.answers.answer(make_request(unreadable))
        assert await harness.answers.endpoint_columns(unreadable, CALLER) == []
        assert await harness.answers.endpoint_columns(WARMED_ENDPOINT, CALLER) != []

    run_with_harness(test)


def test_a_location_is_reported_once_and_without_the_query() -> None:
    async def test(harness: ServeHarness) -> None:
        for secret in ("hunter2", "hunter3"):
            own = SandboxQuery(QueryLanguage.SQL, f"select '{secret}' as x from numbers")
            with pytest.raises(CompilerFailed):
                await harness.answers.answer(msgspec.structs.replace(make_request(), sandbox=own))
        (reported,) = reported_bugs(harness)
        assert "hunter" not in reported.trace

    run_with_harness(test, failing_harness())


def test_a_refused_query_is_not_reported() -> None:
    async def test(harness: ServeHarness) -> None:
        own = SandboxQuery(QueryLanguage.SQL, "select soundex('x') as x from numbers")
        with pytest.raises(QueryUnsupported):
            await harness.answers.answer(msgspec.structs.replace(make_request(), sandbox=own))
        assert not reported_bugs(harness)

    run_with_harness(test)
