"""Queries that try to read a redacted value, or to infer it from the answer, learn nothing.

Two streams have events that differ only in private values. A redacted query must have the same answer, or the same
error, on both streams.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Engine, ReadProgress
from cordwood.errors import Fault
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.lql.compile import compile_lql
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactionConfig, RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.attack.redaction_escapes import ESCAPES, LQL_ESCAPES
from tests.chdb_databases import fresh_database

FIRST_SECRETS = {
    "ip": "203.0.113.7",
    "ip6": "2001:db8:1:2::7",
    "mail": "first.person@example.org",
    "card": "4111111111111111",
    "key": "sb_secret_aaaaaaaaaaaa",
    "password": "correct horse",
    "field": "10.9.9.9",
}
SECOND_SECRETS = {
    "ip": "198.51.100.200",
    "ip6": "fe80::aaaa:1",
    "mail": "someone-else@elsewhere.example.com",
    "card": "5500005555555559",
    "key": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "password": "x",
    "field": "192.168.77.8",
}
ENDPOINT_SQL = """
with logs as (select id, timestamp, event_message, metadata, who from `{stream}`),
     again as (select id, event_message from `{stream}` order by timestamp desc)
select id, timestamp, event_message, metadata from logs order by timestamp desc limit 100
"""

RunQuery = Callable[..., object]


class _NeverCancelled:
    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


def events(secret: Mapping[str, str]) -> list[Event]:
    inner = json.dumps({"ip": secret["ip"], "email": secret["mail"], "password": secret["password"]})
    metadata = {
        "request": {
            "ip": secret["ip"],
            "ip6": secret["ip6"],
            "status": 200,
            "headers": [{"name": "x-real-ip", "value": secret["ip"]}, {"name": "cookie", "value": "a"}],
            "list": [secret["ip"], secret["mail"], 7],
            "password": secret["password"],
            secret["field"]: "seen",
            "card": secret["card"],
            "mixed": secret["card"],
        },
        "inner": inner,
    }
    texts = [
        f"hit from {secret['ip']} by {secret['mail']}",
        f"key {secret['key']} card {secret['card']} [{secret['ip6']}]:443",
        inner,
        "nothing here",
    ]
    return [
        Event(
            f"id-{at}",
            1_763_000_000_000_000 + at,
            text,
            "default",
            json.dumps(metadata),
            json.dumps({"who": secret["ip"]}),
        )
        for at, text in enumerate(texts)
    ]


def open_duckdb(folder: Path, redacting: RedactionConfig) -> Engine:
    return DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(redaction=redacting))


def open_clickhouse(_: Path, redacting: RedactionConfig) -> Engine:
    """Open a ClickHouse engine without TTL.

    By the server's clock, the events of these tests are so old that a TTL would delete them.
    """
    address = fresh_database()
    module = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = module.ClickHouseEngine(address, module.ClickHouseOptions(has_ttl=False, redaction=redacting))
    return engine


@pytest.fixture(scope="module", params=[open_duckdb, open_clickhouse], ids=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    opened: Engine = request.param(tmp_path_factory.mktemp("escapes"), RedactionConfig(hash_key="key"))
    opened.create_stream_tables([Stream("one", UUID(int=1)), Stream("other", UUID(int=2))])
    for name, secret in (("one", FIRST_SECRETS), ("other", SECOND_SECRETS)):
        validated, learnt = ShapeInferrer(opened.shapes_by_stream).infer_stream_shape(name, events(secret))
        opened.append([ReceivedEventBatch(name, validated, 1_763_000_000_000_000, learnt)])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ask(engine: Engine) -> RunQuery:
    redactions = {mode: RedactionPolicy(mode) for mode in RedactMode}

    def ask_stream(stream: str, text: str, *, mode: RedactMode = RedactMode.REPLACE, is_lql: bool = False) -> object:
        """Return the rows of an answer as JSON texts, or the code, message and hint of the fault."""
        endpoint = Endpoint(
            "logs", UUID(int=3), ENDPOINT_SQL.format(stream=stream), stream, accepts_sandbox_queries=True
        )
        compiled = compile_lql if is_lql else compile_sandbox_query
        try:
            program = parse_and_check_endpoint(endpoint)
            statement = compiled(program, text, engine.compile_target, engine.shapes_by_stream(), redactions[mode])
            question = bind_parameters(statement, {}, 1_763_000_001_000_000, engine.regex_error)
            rows = engine.answer(question, AnswerLimits(100, 30.0), _NeverCancelled())
            return [msgspec.json.encode(row).decode() for batch in rows.batches for row in batch]
        except Fault as fault:
            return f"{fault.code} {fault.message} {fault.hint}"

    return ask_stream


@pytest.mark.parametrize("sql", ESCAPES)
def test_no_sql_query_distinguishes_private_values(ask: RunQuery, sql: str) -> None:
    answer = ask("one", sql)
    assert answer == ask("other", sql.replace(FIRST_SECRETS["field"], SECOND_SECRETS["field"]))
    assert not [value for value in FIRST_SECRETS.values() if value in str(answer) and value not in sql]


@pytest.mark.parametrize("lql", LQL_ESCAPES)
def test_no_lql_query_distinguishes_private_values(ask: RunQuery, lql: str) -> None:
    assert ask("one", lql, is_lql=True) == ask("other", lql, is_lql=True)


@pytest.mark.parametrize("mode", [RedactMode.HASH, RedactMode.TRUNCATE])
@pytest.mark.parametrize("sql", ESCAPES[:12])
def test_no_other_redaction_mode_returns_a_private_value(ask: RunQuery, sql: str, mode: RedactMode) -> None:
    answer = str(ask("one", sql, mode=mode))
    assert not [value for value in FIRST_SECRETS.values() if value in answer and value not in sql]


def test_most_of_the_queries_are_answered(ask: RunQuery) -> None:
    answered = [sql for sql in ESCAPES if isinstance(ask("one", sql), list)]
    assert len(answered) >= 60


def test_numbers_are_not_redacted(ask: RunQuery) -> None:
    assert ask("one", "select count(*) from logs, unnest(metadata) m, unnest(m.request) r where r.status = 200") == [
        "[4]"
    ]
