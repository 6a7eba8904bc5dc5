"""What the compiler breaks on is a bug with an incident id, told to the operator once a place, without the query."""

import msgspec
import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import CompilerBroke, QueryUnsupported
from cordwood.observe.observation import BugFound
from cordwood.serve.query_request import Language, SandboxText
from cordwood.sql.stages import Lowered, Resolved
from tests.fakes.engines import ScriptedEngine
from tests.unit.serve.kitchen import Kitchen, ask, run


class OddTarget(DuckDBTarget):
    """A target that trips over every tree."""

    def lower(self, resolved: Resolved) -> Lowered:
        raise LookupError(resolved.text)


def stumbling() -> Kitchen:
    engine = ScriptedEngine()
    engine.target = OddTarget()
    return Kitchen(engine=engine)


def broke(kitchen: Kitchen) -> list[BugFound]:
    return [note for note in kitchen.notes.all if isinstance(note, BugFound)]


def test_the_author_is_told_an_incident_and_the_operator_where_it_broke() -> None:
    async def test(kitchen: Kitchen) -> None:
        with pytest.raises(CompilerBroke, match="The compiler broke on this query") as refused:
            await kitchen.answers.answer(ask())
        (told,) = broke(kitchen)
        assert refused.value.code == "bug.compiler"
        assert refused.value.hint == f"Rewrite the query, and report the incident {told.incident}."
        assert told.incident.startswith("compiler-")
        assert told.trace.endswith("LookupError")
        assert "in lower" in told.trace

    run(test, stumbling())


def test_a_place_is_told_once_and_the_query_never() -> None:
    async def test(kitchen: Kitchen) -> None:
        for secret in ("hunter2", "hunter3"):
            own = SandboxText(Language.SQL, f"select '{secret}' as x from numbers")
            with pytest.raises(CompilerBroke):
                await kitchen.answers.answer(msgspec.structs.replace(ask(), sandbox=own))
        (told,) = broke(kitchen)
        assert "hunter" not in told.trace

    run(test, stumbling())


def test_what_is_refused_on_purpose_is_no_news() -> None:
    async def test(kitchen: Kitchen) -> None:
        own = SandboxText(Language.SQL, "select soundex('x') as x from numbers")
        with pytest.raises(QueryUnsupported):
            await kitchen.answers.answer(msgspec.structs.replace(ask(), sandbox=own))
        assert not broke(kitchen)

    run(test)
