"""The statement cache compiles each query only once, until the shapes on which it depends change.

The size of the cache is limited in bytes.
"""

from collections.abc import Mapping

import msgspec
import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadQuerySyntax, QueryRefused
from cordwood.model.definitions import Endpoint
from cordwood.model.event import EventShape, ValueKind
from cordwood.model.key import Caller
from cordwood.serve.compilation import StatementCache
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.paging import Page
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.unit.serve.harness import WARMED_ENDPOINT

LOGS_ENDPOINT = msgspec.structs.replace(
    WARMED_ENDPOINT,
    sql="with logs as (select t.id from `postgres.logs` as t) select id from logs",
    revision="logs-1",
    parameters=(),
)


EVENTS_ENDPOINT = msgspec.structs.replace(
    LOGS_ENDPOINT,
    sql="with logs as (select id, metadata from `postgres.logs`) select id from logs",
    revision="events-1",
)


class GrowingShapes:
    """Shapes of streams to which a test adds paths."""

    def __init__(self) -> None:
        self.shapes = {"postgres.logs": EventShape(), "cloudflare.logs.prod": EventShape()}

    def __call__(self) -> Mapping[str, EventShape]:
        return dict(self.shapes)

    def learn(self, stream: str, *steps: str, kind: ValueKind = ValueKind.TEXT) -> None:
        self.shapes[stream] = self.shapes[stream].merged_with_kinds({steps: frozenset({kind})})


def make_cache(shapes: GrowingShapes, max_bytes: int = 200_000) -> StatementCache:
    return StatementCache(DuckDBTarget(), shapes, max_bytes=max_bytes)


def is_found(statements: StatementCache, endpoint: Endpoint, text: SandboxQuery | None = None) -> bool:
    return statements.find(endpoint, text) is not None


def test_a_compiled_statement_is_found() -> None:
    statements = make_cache(GrowingShapes())
    assert not is_found(statements, LOGS_ENDPOINT)
    compiled = statements.compile_and_cache(LOGS_ENDPOINT, None)
    assert statements.find(LOGS_ENDPOINT, None) is compiled


def sandbox(text: str) -> SandboxQuery:
    return SandboxQuery(QueryLanguage.SQL, text)


QUERY_OF_A_PATH = sandbox("select m.user_agent from logs cross join unnest(metadata) as m")
STAR_QUERY = sandbox("select m.* from logs cross join unnest(metadata) as m")


@pytest.mark.parametrize(
    ("text", "learnt", "is_still_found"),
    [
        (QUERY_OF_A_PATH, ("cloudflare.logs.prod", "metadata", "user_agent"), True),
        (QUERY_OF_A_PATH, ("postgres.logs", "metadata", "other"), True),
        (QUERY_OF_A_PATH, ("postgres.logs", "metadata", "user_agent"), False),
        (QUERY_OF_A_PATH, ("postgres.logs", "metadata", "user-agent"), False),
        (STAR_QUERY, ("postgres.logs", "metadata", "other", "below"), True),
        (STAR_QUERY, ("postgres.logs", "metadata", "other"), False),
    ],
)
def test_a_statement_is_found_until_a_path_that_it_depends_on_changes(
    text: SandboxQuery, learnt: tuple[str, ...], *, is_still_found: bool
) -> None:
    shapes = GrowingShapes()
    shapes.learn("postgres.logs", "metadata", kind=ValueKind.OBJECT)
    shapes.learn("postgres.logs", "metadata", "path")
    shapes.learn("postgres.logs", "metadata", "other", "first")
    statements = make_cache(shapes)
    statements.compile_and_cache(EVENTS_ENDPOINT, text)
    shapes.learn(*learnt)
    assert is_found(statements, EVENTS_ENDPOINT, text) is is_still_found


def test_a_statement_is_reused_for_shapes_that_agree_on_its_paths() -> None:
    shapes = GrowingShapes()
    statements = make_cache(shapes)
    first_compiled = statements.compile_and_cache(EVENTS_ENDPOINT, QUERY_OF_A_PATH)
    for version in range(50):
        other = {**shapes(), "postgres.logs": EventShape({("metadata", f"k{version}"): frozenset()}, 100 + version)}
        assert statements.find(EVENTS_ENDPOINT, QUERY_OF_A_PATH, shapes=other) is first_compiled


def test_another_revision_or_query_is_another_statement() -> None:
    statements = make_cache(GrowingShapes())
    statements.compile_and_cache(LOGS_ENDPOINT, None)
    assert not is_found(statements, msgspec.structs.replace(LOGS_ENDPOINT, revision="logs-2"))
    assert not is_found(statements, LOGS_ENDPOINT, sandbox("select id from logs"))


def test_the_least_recently_used_statements_are_evicted() -> None:
    statements = make_cache(GrowingShapes(), max_bytes=60_000)
    texts = [sandbox(f"select id, {number} as n from logs") for number in range(40)]
    for text in texts:
        statements.compile_and_cache(LOGS_ENDPOINT, text)
        assert is_found(statements, LOGS_ENDPOINT, texts[0]) or text is texts[0]
    assert not is_found(statements, LOGS_ENDPOINT, texts[1])
    assert is_found(statements, LOGS_ENDPOINT, texts[-1])


@pytest.mark.parametrize(("text", "fault"), [("select (", BadQuerySyntax), ("select 1 from elsewhere", QueryRefused)])
def test_a_failed_compilation_is_not_cached(text: str, fault: type[Exception]) -> None:
    statements = make_cache(GrowingShapes())
    with pytest.raises(fault):
        statements.compile_and_cache(LOGS_ENDPOINT, sandbox(text))
    assert not is_found(statements, LOGS_ENDPOINT, sandbox(text))


def test_pages_of_any_size_share_a_few_statements() -> None:
    """Use only a few row limits. Otherwise a caller with a thousand page sizes could evict the statements of others."""
    caller = Caller("key", frozenset({"query"}))
    requests = [
        QueryRequest(LOGS_ENDPOINT, caller, ANSWER_FORMATS_BY_NAME["json"], page_size=rows, is_paging_requested=True)
        for rows in range(1, 1001)
    ]
    assert {request.page.page_size for request in requests} == {10, 100, 1000}
    assert all(request.max_rows == request.page_size for request in requests)


def test_a_page_with_a_row_count_to_skip_is_not_cached() -> None:
    statements = make_cache(GrowingShapes())
    for page in (
        Page(10, rows_sent_before=10, is_paging_requested=True),
        Page(10, 1, begins_after_last_row=True, remaining_rows=3, is_paging_requested=True),
    ):
        assert statements.compile_and_cache(LOGS_ENDPOINT, None, page=page)
        assert statements.find(LOGS_ENDPOINT, None, page=page) is None
    page_after_row = Page(10, 1, begins_after_last_row=True, is_paging_requested=True)
    statements.compile_and_cache(LOGS_ENDPOINT, None, page=page_after_row)
    assert statements.find(LOGS_ENDPOINT, None, page=page_after_row) is not None
