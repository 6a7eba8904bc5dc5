"""A marker word in names and strings never occurs in templates or tokenized SQL, where it could be read as SQL.

Templates consist only of text of the compiler's rules, and tokenized SQL only of templates and placeholder tokens. The
queries of the spec's pages ensure that new rules are tested.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import Fault
from cordwood.lql.compile import compile_lql
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.event import EventShape, ValueKind
from cordwood.model.redaction import RedactMode
from cordwood.sql import lowering as fragments
from cordwood.sql.compile import (
    compile_sandbox_query,
    compile_saved_query,
    compile_standalone_query,
    parse_and_check_endpoint,
)
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement, Target
from cordwood.sql.tree_printer import PrintedTree, TokenizedSql
from tests.attack.injections import (
    INTERPRETING_QUERY_PAIRS,
    LITERAL_PLACES,
    NAME_PLACES,
    TEXT_PLACES,
    quote_name,
    quote_text,
)
from tests.spec_runner.page import read_cases

CANARY = "qz9canary"
PAGES = sorted(Path("spec").glob("*/*.md"))
TARGETS: Mapping[str, Target] = {"duckdb": DuckDBTarget(), "clickhouse": ClickHouseTarget()}
# The test runs every n-th case of a page; `make torture` runs all.
STRIDE = 1 if os.environ.get("TORTURE") == "full" else 6
TOKENIZE = Dialect.get_or_raise("bigquery").tokenize

ENDPOINT = Endpoint(
    "canary",
    UUID(int=1),
    f"""
    with edge_logs as (
        select t.id, t.timestamp, t.event_message, t.metadata, '{CANARY}' as {CANARY} from `{CANARY}.logs` as t
        where t.project = @project and (@{CANARY} is null or t.event_message = @{CANARY}) order by t.timestamp desc
    )
    select id, `{CANARY}`, m.{CANARY} as m{CANARY}, m.request.{CANARY} as r{CANARY} from edge_logs as {CANARY} cross join unnest(metadata) as m
    """,
    "1",
    accepts_sandbox_queries=True,
    parameters=(Parameter("project"), Parameter(CANARY)),
)
KINDS_BY_PATH = {
    ("metadata",): frozenset({ValueKind.OBJECT}),
    ("metadata", "request"): frozenset({ValueKind.OBJECT}),
    ("metadata", "request", "path"): frozenset({ValueKind.TEXT}),
    ("metadata", "request", CANARY): frozenset({ValueKind.TEXT, ValueKind.NUMBER}),
    ("metadata", CANARY): frozenset({ValueKind.OBJECT, ValueKind.ARRAY}),
    ("metadata", CANARY, CANARY): frozenset({ValueKind.NUMBER}),
    (CANARY,): frozenset({ValueKind.TEXT}),
}
SHAPES = {f"{CANARY}.logs": EventShape(KINDS_BY_PATH, 1)}
STAR_QUERIES = (
    "select * from edge_logs",
    "select m.* from edge_logs cross join unnest(metadata) as m",
    "select r.* from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r",
    f"select c.{CANARY}, count(*) as n from edge_logs cross join unnest(metadata) as m cross join unnest(m.{CANARY}) as c group by 1",
    "select array(select as struct m.* from unnest(metadata) as m) as s from edge_logs",
    f"select event_message from edge_logs where event_message like '%{CANARY}%' and regexp_contains(event_message, '{CANARY}')",
    f"select m.request.path, '{CANARY}' as x from edge_logs cross join unnest(metadata) as m where m.request.path = '{CANARY}' order by timestamp desc limit 5",
)
LQL_QUERIES = (
    f'f:edge_logs {CANARY} ~{CANARY} m.{CANARY}.{CANARY}:{CANARY} m."a{CANARY}":~{CANARY} -m.request.path:"{CANARY}"',
    f"f:edge_logs s:m.{CANARY}@{CANARY} s:m.request.path m.request.{CANARY}:@>{CANARY}",
    f"f:edge_logs c:count(*) c:group_by(t::minute) c:group_by(m.request.{CANARY}) m.request.path:{CANARY}",
)


@pytest.fixture
def recorded_templates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record the templates and the tokenized SQL that the compiler uses; afterwards, fail if one has the marker."""
    recorded_templates: list[str] = []
    split_template, render = fragments.split_template, TokenizedSql.replace_placeholder_tokens

    def split_and_record(template: str) -> tuple[str | int, ...]:
        recorded_templates.append(template)
        return split_template(template)

    def render_and_record(tokenized: TokenizedSql, text: str) -> PrintedTree:
        recorded_templates.append(text)
        return render(tokenized, text)

    monkeypatch.setattr(fragments, "split_template", split_and_record)
    monkeypatch.setattr(TokenizedSql, "replace_placeholder_tokens", render_and_record)
    yield recorded_templates
    assert not [text for text in recorded_templates if CANARY in text.lower()]


def is_compiled_with_canary(make: Callable[[], Statement]) -> bool:
    """Return whether a query can be compiled and its statement contains the marker word."""
    try:
        statement = make()
    except Fault:
        return False
    return CANARY in statement.sql.lower() or CANARY in str(statement.column_names).lower()


@pytest.mark.parametrize("engine", TARGETS)
def test_no_template_contains_a_canary_from_any_place_of_the_grammar(
    engine: str, recorded_templates: list[str]
) -> None:
    target, program = TARGETS[engine], parse_and_check_endpoint(ENDPOINT)
    name, text = quote_name(CANARY), quote_text(CANARY)
    queries = [
        *(place.replace("N", name) for place in NAME_PLACES),
        *(
            place.replace("T", text)
            for place in (
                *TEXT_PLACES,
                *LITERAL_PLACES,
                *(literal_query for literal_query, _ in INTERPRETING_QUERY_PAIRS),
            )
        ),
        *STAR_QUERIES,
    ]
    for redaction in (None, RedactionPolicy(RedactMode.HASH)):
        sandbox = partial(compile_sandbox_query, program, target=target, shapes=SHAPES, redaction=redaction)
        lql = partial(compile_lql, program, target=target, shapes=SHAPES, redaction=redaction)
        assert sum(is_compiled_with_canary(partial(sandbox, sql)) for sql in queries) > len(queries) * 0.6
        assert [query for query in LQL_QUERIES if not is_compiled_with_canary(partial(lql, query))] == []
        assert is_compiled_with_canary(partial(compile_saved_query, program, target, SHAPES, redaction))
    assert len(recorded_templates) > 1000


@pytest.mark.torture
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
@pytest.mark.usefixtures("recorded_templates")
def test_no_template_contains_a_canary_from_the_queries_of_the_spec(page: Path) -> None:
    """Put the marker word into each literal of a query in turn, and then into all aliases at once."""
    queries = [case.text("sql") or "" for case in read_cases(page) if not case.fences_of("stream")]
    for sql in queries[:: STRIDE if len(queries) > STRIDE else 1]:
        for changed in queries_with_canaries(sql):
            for target in TARGETS.values():
                is_compiled_with_canary(partial(compile_standalone_query, changed, target))


def queries_with_canaries(sql: str) -> Iterator[str]:
    try:
        tokens = TOKENIZE(sql)
    except Exception:  # noqa: BLE001 - a page may contain a query that cannot be parsed
        return
    for token in tokens:
        if token.token_type == TokenType.STRING:
            yield f"{sql[: token.end]}{CANARY}{sql[token.end :]}"
    for name in set(re.findall(r"(?i)\bas (\w+)", sql)):
        sql = re.sub(rf"\b{name}\b", f"{name}_{CANARY}", sql)
    yield sql
