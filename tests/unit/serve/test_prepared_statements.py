"""Statements are compiled once, until what they depend on changes, and take no more memory than they may."""

from collections.abc import Mapping

import msgspec
import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryRefused, QuerySyntax
from cordwood.model.endpoint import Endpoint
from cordwood.model.shape import Shape
from cordwood.serve.ask import Language, SandboxText
from cordwood.serve.prepared import Prepared
from tests.unit.serve.kitchen import WARMED

LOGS = msgspec.structs.replace(
    WARMED,
    sql="with logs as (select t.id from `postgres.logs` as t) select id from logs",
    revision="logs-1",
    parameters=(),
)


class Shapes:
    """Shapes that grow when told."""

    def __init__(self) -> None:
        self.versions = {"postgres.logs": 1, "cloudflare.logs.prod": 1}

    def __call__(self) -> Mapping[str, Shape]:
        return {stream: Shape(version=version) for stream, version in self.versions.items()}


def sandbox(text: str) -> SandboxText:
    return SandboxText(Language.SQL, text)


def prepared(shapes: Shapes, most_characters: int = 100_000) -> Prepared:
    return Prepared(DuckDBTarget(), shapes, most_characters=most_characters)


def is_found(statements: Prepared, endpoint: Endpoint, text: SandboxText | None = None) -> bool:
    return statements.find(endpoint, text) is not None


def test_a_statement_is_found_after_it_was_compiled() -> None:
    statements = prepared(Shapes())
    assert not is_found(statements, LOGS)
    compiled = statements.compile(LOGS, None)
    assert statements.find(LOGS, None) is compiled


def test_it_is_found_until_a_stream_that_it_reads_changes_shape() -> None:
    shapes = Shapes()
    statements = prepared(shapes)
    statements.compile(LOGS, None)
    shapes.versions["cloudflare.logs.prod"] += 1
    assert is_found(statements, LOGS)
    shapes.versions["postgres.logs"] += 1
    assert not is_found(statements, LOGS)


def test_another_revision_or_text_is_another_statement() -> None:
    statements = prepared(Shapes())
    statements.compile(LOGS, None)
    assert not is_found(statements, msgspec.structs.replace(LOGS, revision="logs-2"))
    assert not is_found(statements, LOGS, sandbox("select id from logs"))


def test_the_least_recently_used_go_when_there_is_no_room() -> None:
    statements = prepared(Shapes(), most_characters=3000)
    texts = [sandbox(f"select id, {number} as n from logs") for number in range(40)]
    for text in texts:
        statements.compile(LOGS, text)
        assert is_found(statements, LOGS, texts[0]) or text is texts[0]
    assert not is_found(statements, LOGS, texts[1])
    assert is_found(statements, LOGS, texts[-1])


@pytest.mark.parametrize(("text", "fault"), [("select (", QuerySyntax), ("select 1 from elsewhere", QueryRefused)])
def test_what_does_not_compile_is_not_kept(text: str, fault: type[Exception]) -> None:
    statements = prepared(Shapes())
    with pytest.raises(fault):
        statements.compile(LOGS, sandbox(text))
    assert not is_found(statements, LOGS, sandbox(text))
