"""Filters of redacted queries, whose conditions are evaluated only on redacted text."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, ReadProgress
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.unit.redaction.texts import SAMPLE_TABLE

SAMPLE_TEXTS = [text for text, _ in SAMPLE_TABLE if "\x01" not in text]
# Columns of the query, each with the SQL that reads it in DuckDB.
SQL_OF_COLUMN = {"t.event_message": '"t"."event_message"', "m.text": '"t"."metadata.""text"" text"'}
COLUMNS = tuple(SQL_OF_COLUMN)
FILTER_TEMPLATES = [
    "{} like '%from%'",
    "{} not like '%ip%'",
    "{} like 'REDACTED%'",
    "{} like '%ED'",
    "{} like 'D%'",
    "{} like '%10.0%'",
    "{} like '%ACT%'",
    "{} like '%1_2%'",
    "{} like '%a%R%'",
    "{} = 'REDACTED'",
    "{} = '1.2.3.4'",
    "{} = '1.2.3.4.5'",
    "not ({} = 'a::b')",
    "{} in ('10.0.0.1', 'a::b', 'from REDACTED')",
    "{} not in ('10.0.0.1', 'a::b')",
    "regexp_contains({}, 'from')",
    "regexp_contains({}, '10')",
    "regexp_contains({}, 'ED')",
    "regexp_contains({}, 'D, ')",
    "regexp_contains({}, 'i.*R')",
    "regexp_contains({}, '^a::b$')",
    "not regexp_contains({}, 'ip')",
]

Query = Callable[[str], list[object]]


class _Uncancelled:
    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    folder: Path = tmp_path_factory.mktemp("sparing")
    opened = DuckDBEngine(folder, DuckDBTarget())
    opened.create_stream_tables([Stream("s", UUID(int=1))])
    events = [Event(str(at), at, text, "p", json.dumps({"text": text}), "{}") for at, text in enumerate(SAMPLE_TEXTS)]
    inspected, learnt = ShapeInferrer(opened.shapes_by_stream).infer_stream_shape("s", events)
    opened.append([ReceivedEventBatch("s", inspected, 0, learnt)])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def query(engine: DuckDBEngine) -> Query:
    def run(sql: str) -> list[object]:
        program = parse_and_check_endpoint(Endpoint("e", UUID(int=3), sql, "s"))
        statement = compile_saved_query(
            program, engine.compile_target, engine.shapes_by_stream(), RedactionPolicy(RedactMode.REPLACE)
        )
        rows = engine.answer(
            bind_parameters(statement, {}, 0, engine.regex_error), AnswerLimits(1000, 30.0), _Uncancelled()
        )
        return [row[0] for batch in rows.batches for row in batch]

    return run


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("filter_template", FILTER_TEMPLATES)
def test_where_keeps_the_rows_for_which_the_selected_condition_is_true(
    query: Query, column: str, filter_template: str
) -> None:
    condition = filter_template.format(column)
    source = "from s as t cross join unnest(t.metadata) as m"
    filtered_ids = query(f"select t.id as id {source} where {condition} order by id")
    selected = query(f"select if({condition}, t.id, null) as id {source} order by id")
    assert filtered_ids == [selected_id for selected_id in selected if selected_id is not None]


def statement_of(engine: DuckDBEngine, condition: str) -> Statement:
    sql = f"select t.id as id from s as t cross join unnest(t.metadata) as m where {condition}"
    program = parse_and_check_endpoint(Endpoint("e", UUID(int=3), sql, "s"))
    return compile_saved_query(
        program, engine.compile_target, engine.shapes_by_stream(), RedactionPolicy(RedactMode.REPLACE)
    )


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("filter_template", FILTER_TEMPLATES)
def test_conditions_read_no_text_before_redaction(engine: DuckDBEngine, column: str, filter_template: str) -> None:
    """Read the column only inside the redaction function.

    Otherwise the time of a query would reveal whether the original text matches.
    """
    statement = statement_of(engine, filter_template.format(column))
    assert statement.plan.variants[0].block_filters() == ()
    for scan in statement.sql.split(" UNION ALL "):
        condition = scan.split(" WHERE ", 1)[1]
        assert (
            condition.count(SQL_OF_COLUMN[column])
            == condition.count(f"redacted_text_replace({SQL_OF_COLUMN[column]}")
            == 1
        )


def test_values_read_as_text_are_not_cast_to_variant(engine: DuckDBEngine) -> None:
    assert "::VARIANT" not in statement_of(engine, "m.text like '%503%'").sql
