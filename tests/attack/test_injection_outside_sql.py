"""SQL injection through endpoint files, names of streams, parameters, LQL, or the client library of the engine."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.errors import BrokenDefinitionFiles
from cordwood.settings.settings import Settings
from tests.attack.injections import fragments_for_place, quote_name, quote_text
from tests.attack.test_pinned_queries import FOREIGN_TEXT, event, make_settings, send
from tests.chdb_databases import fresh_database

KEY_OF_DIGESTS = "s3cr3tk3y0fd1gests"
STREAM = "a\"b'c{0}@a$x\\%s--/*;"
# An endpoint with hostile names of its stream, fields and parameters.
ENDPOINT = f"""/*
name = "hostile"
description = '''{{0}} @a "q" -- $project'''
sandbox = true
redact_pii = false

[parameters.project]
required = true

[parameters.p]
default = '{{0}}\\"@a'

[parameters.like]
kind = "regex"
*/
with logs as (
    select t.id, t.timestamp, t.event_message, t.metadata, @p as `p{{0}}"`, '{{0}} @p' as `@p` from {quote_name(STREAM)} as t
    where t.project = @project and (@like is null or regexp_contains(t.event_message, @like))
)
select event_message, `p{{0}}"` as p, `@p` as said from logs order by timestamp desc limit 5
"""
HASHING_ENDPOINT = """/*
name = "hashed"
sandbox = true
redact_pii = true
redact_mode = "hash"
*/
with logs as (select t.id, t.timestamp, t.event_message from `postgres.logs` as t)
select event_message from logs
"""


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "endpoints").mkdir()
    (folder / "endpoints" / "hostile.sql").write_text(ENDPOINT)
    (folder / "endpoints" / "hashed.sql").write_text(HASHING_ENDPOINT)
    (folder / "streams.toml").write_text(f"[[stream]]\nname = '''{STREAM}'''\n")
    engine = fresh_database() if request.param == "clickhouse" else "duckdb"
    chosen = make_settings(
        folder / "data", endpoints=folder / "endpoints", streams=folder / "streams.toml", engine=engine
    )
    with open_in_process_app(with_key(chosen)) as app:
        for stream in ("postgres.logs", STREAM):
            events = [event(project, mark) for project, mark in (("default", "ours"), ("other", FOREIGN_TEXT))]
            events[0]["metadata"] = {"a": {"{0}": "x", "@a": "y", 'q"': "z", "b\\": "w"}, **IN_PROJECT}
            body = json.dumps(events).encode()
            headers = {"content-type": "application/json"}
            status, _, answer = app.send("POST", f"/api/logs?source_name={quoted(stream)}", body, headers)
            assert status == 200, answer
        yield app


IN_PROJECT = {"project": "default"}


def with_key(chosen: Settings) -> Settings:
    return msgspec.structs.replace(chosen, redaction=msgspec.structs.replace(chosen.redaction, key=KEY_OF_DIGESTS))


def quoted(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "." else f"%{ord(letter):02X}" for letter in text)


@pytest.fixture(scope="module")
def key(app: InProcessApp) -> str:
    _, answer = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})
    return str(json.loads(answer)["token"])


def query_endpoint(
    app: InProcessApp, key: str, endpoint: str = "hostile", **body: str
) -> list[dict[str, object]] | None:
    status, answer = send(app, f"/api/endpoints/query/{endpoint}", body, x_api_key=key)
    assert status in (200, 400, 422), (body, answer)
    assert FOREIGN_TEXT not in answer
    assert KEY_OF_DIGESTS not in answer
    return list(json.loads(answer)["result"]) if status == 200 else None


def test_an_endpoint_and_a_stream_with_hostile_names_are_read(app: InProcessApp, key: str) -> None:
    default = '{0}\\"@a'
    assert query_endpoint(app, key) == [{"event_message": "ours", "p": default, "said": "{0} @p"}]
    result_rows = query_endpoint(
        app, key, sql='select `p{0}"`, `@p`, l.* except (id, timestamp, metadata) from logs as l'
    )
    assert result_rows == [
        {'p{0}"': default, "@p": "{0} @p", "event_message": "ours", 'p{0}"_1': default, "@p_1": "{0} @p"}
    ]


@pytest.mark.torture
@pytest.mark.parametrize("at", range(20))
def test_a_value_of_a_parameter_is_never_sql(app: InProcessApp, key: str, at: int) -> None:
    for value in fragments_for_place(at):
        assert query_endpoint(app, key, p=value) == [{"event_message": "ours", "p": value, "said": "{0} @p"}]
        assert query_endpoint(app, key, p=value, sql=f"select @p = {quote_text(value)} as same from logs") == [
            {"same": True}
        ]
        result_rows = query_endpoint(app, key, like=value)
        assert result_rows in (None, [], [{"event_message": "ours", "p": '{0}\\"@a', "said": "{0} @p"}])


LQL_PLACES = (
    *("T", "~T", "-T order:m.T@asc", "t:T", "m.project:T", "m.project:~T", "m.a.T:x", "m.T:T", "m.a:@>T", "m.a:@>~T"),
    *("s:m.a.T s:m.T@T", "c:count(*) c:group_by(m.T)", "s:T", "s:m.T@v", "m.level:T..T", "m.T:NULL", "limit:T"),
)


@pytest.mark.torture
@pytest.mark.parametrize(("at", "query"), list(enumerate(LQL_PLACES)))
def test_lql_reads_nothing_of_another_project(app: InProcessApp, key: str, at: int, query: str) -> None:
    for text in fragments_for_place(at):
        quoted_text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        query_endpoint(app, key, lql=f"f:logs {query.replace('T', quoted_text)}")
        query_endpoint(app, key, lql=f"f:logs {query.replace('T', text)}")


def test_lql_finds_fields_with_hostile_names(app: InProcessApp, key: str) -> None:
    for name, value in (("{0}", "x"), ("@a", "y"), ('q\\"', "z"), ("b\\\\", "w")):
        assert query_endpoint(app, key, lql=f'f:logs m.a."{name}":"{value}" s:m.a."{name}"@v') == [{"v": value}], name
        assert query_endpoint(app, key, lql=f'f:logs m.a."{name}":"no" s:m.a."{name}"@v') == [], name


@pytest.mark.parametrize(
    "text",
    ["%(cordwood_redaction_key)s", "x%(cordwood_redaction_key)s'", "{cordwood_redaction_key:String}", "%s", "100%"],
)
def test_the_engine_s_client_substitutes_nothing_in_a_string(app: InProcessApp, text: str) -> None:
    """Check that strings with placeholders are returned unchanged.

    ClickHouse's client formats a query without server parameters with Python's operator `%`.
    """
    sql = f"select {quote_text(text)} as v"
    assert query_endpoint(app, app.private_key_secret, "hashed", sql=sql) == [{"v": text}]
    assert query_endpoint(app, app.private_key_secret, "hashed", sql=f"{sql} from logs limit 1") == [{"v": text}]


def test_parameters_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    quoted_text = (
        '/* name = "two"\n[parameters.project]\nrequired = true\n[parameters.Project]\n*/ select @project as a'
    )
    (tmp_path / "two.sql").write_text(quoted_text)
    with (
        pytest.raises(BrokenDefinitionFiles, match="only in case"),
        open_in_process_app(make_settings(tmp_path / "data", endpoints=tmp_path)),
    ):
        pass
