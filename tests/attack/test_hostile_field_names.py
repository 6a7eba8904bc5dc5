"""Field names that contain SQL, or that an engine cannot store, do not change answers for other projects."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.parquet_import import read_stored_events
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.event import Event, is_listable
from tests.attack.injections import FRAGMENTS, quote_name, quote_text
from tests.attack.test_pinned_queries import FOREIGN_TEXT, STREAMS, ask, event, make_settings, send
from tests.chdb_databases import fresh_database
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending

IS_FULL = os.environ.get("TORTURE") == "full"
STREAM = STREAMS[0]
KEYS = sorted(
    {
        *FRAGMENTS,
        "null",
        "size0",
        "x" * 900,
        "x" * 5000,
        "Path",
        "PATH",
        "pAth",
        "metadata",
        "timestamp",
        "extras",
        "object_paths",
    }
)
# Queries as clients send them, and queries with `*`, which list the fields.
QUERIES = (
    "select * from edge_logs",
    "select id, timestamp, event_message, metadata from edge_logs order by timestamp desc limit 2",
    "select m.* from edge_logs cross join unnest(metadata) as m",
    "select r.* from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r",
    "select m.request.path, count(*) as n from edge_logs cross join unnest(metadata) as m group by 1 order by 1",
    "select array(select as struct m.* from unnest(metadata) as m) as s from edge_logs",
    "select as struct m.* from edge_logs cross join unnest(metadata) as m",
    "select to_json_string(m) as j from edge_logs cross join unnest(metadata) as m",
    "select m from edge_logs cross join unnest(metadata) as m where m.request.path = '/rest/ours'",
    "select x.* from (select m.* from edge_logs cross join unnest(metadata) as m) as x order by x.mark",
    "select m.* from edge_logs cross join unnest(metadata) as m union all select m.* from edge_logs cross join unnest(metadata) as m",
    "select count(*) as n from edge_logs cross join unnest(metadata) as m where regexp_contains(event_message, 'our')",
    "select n.* from edge_logs cross join unnest(metadata) as m left join unnest(m.n) as n",
)


def events_with_key(key: str) -> list[dict[str, object]]:
    inner = {key: "in", "n": {key: [{key: 1}]}}
    return [
        {"event_message": FOREIGN_TEXT, "project": "other", "metadata": {key: f"value of {key}"[:60], "n": inner}},
        {
            "event_message": FOREIGN_TEXT,
            "project": "other",
            "metadata": {"request": {key: {key: FOREIGN_TEXT}}, key: inner},
        },
        {
            "event_message": FOREIGN_TEXT,
            "project": "other",
            key: {key: FOREIGN_TEXT},
            "metadata": {key: [1, {key: key}]},
        },
    ]


@pytest.fixture(params=["duckdb", "clickhouse"], scope="module")
def engine(request: pytest.FixtureRequest) -> str:
    return fresh_database() if request.param == "clickhouse" else "duckdb"


@pytest.fixture(scope="module")
def folder(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with events of two projects, one of which has hostile keys.

    The folder also has the answers for the other project, from before and after the hostile events.
    """
    folder = tmp_path_factory.mktemp("keys")
    with open_in_process_app(make_settings(folder / "data", engine=engine)) as app:
        assert send(app, INGEST_ADDRESS, [event("default", "ours") for _ in range(3)])[0] == 200
        (folder / "before.json").write_text(json.dumps(answers_by_query(app)))
        events = [event for key in KEYS for event in events_with_key(key)]
        status, received = send(app, INGEST_ADDRESS, events)
        assert status == 200, received
        assert json.loads(received)["accepted"] == len(events)
        (folder / "after.json").write_text(json.dumps(answers_by_query(app)))
    return folder


INGEST_ADDRESS = f"/api/logs?source_name={STREAM}"


@pytest.fixture(scope="module")
def app(engine: str, folder: Path) -> Iterator[InProcessApp]:
    """Reopen the service on the data folder, so that queries read all events from storage."""
    with open_in_process_app(make_settings(folder / "data", engine=engine)) as app:
        yield app


def answers_by_query(app: InProcessApp) -> list[object]:
    """Return the answers to a key that is pinned to the project without hostile keys; fields with null are removed."""
    _, received = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})
    key = str(json.loads(received)["token"])
    return [send_query(app, key, sql) for sql in QUERIES]


def send_query(app: InProcessApp, key: str, sql: str, **parameters: str) -> list[object]:
    status, received = ask(app, key, sql=sql, **parameters)
    assert status == 200, (sql, received)
    if parameters.get("project") != "other":
        assert FOREIGN_TEXT not in received
    result_rows = json.loads(received)["result"]
    assert isinstance(result_rows, list)
    return sorted((without_nulls(row) for row in result_rows), key=json.dumps)


def without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_nulls(element) for key, element in value.items() if element is not None}
    return [without_nulls(element) for element in value] if isinstance(value, list) else value


def test_answers_of_another_project_are_unchanged(folder: Path, app: InProcessApp) -> None:
    before = json.loads((folder / "before.json").read_text())
    for query, answer_before, answer_after, repeated_answer in zip(
        QUERIES, before, json.loads((folder / "after.json").read_text()), answers_by_query(app), strict=True
    ):
        assert answer_before == answer_after == repeated_answer, query


@pytest.mark.torture
@pytest.mark.parametrize("key", KEYS[:: 1 if IS_FULL else 9])
def test_values_are_read_by_a_hostile_key(app: InProcessApp, key: str) -> None:
    """Read values by a hostile key in backquotes; without backquotes, a name would also match similar keys."""
    name, value = quote_name(key), f"value of {key}"[:60]
    if key != "":
        assert query_other_project(
            app, f"select m.{name} as v {FROM_UNNESTED_EVENTS} where m.{name} = {quote_text(value)}"
        ) == [{"v": value}]
        in_request = f"{FROM_UNNESTED_EVENTS} cross join unnest(m.request) as r where r.{name}.{name} is not null"
        assert query_other_project(app, f"select r.{name}.{name} as v {in_request}") == [{"v": FOREIGN_TEXT}]
        elements = (
            "cross join unnest(m.`n`) as o cross join unnest(o.`n`) as i cross join unnest(i.N) as e where e.N = 1"
        )
        assert query_other_project(
            app, f"select count(*) as c {FROM_UNNESTED_EVENTS} {elements.replace('N', name)}"
        ) == [{"c": 1}]


def test_a_star_shows_every_key(app: InProcessApp) -> None:
    """Check that `*` returns the value of every key that a shape can list.

    The events are sent to another stream, because one project may add only a limited number of paths to a stream's
    shape.
    """
    flat = [
        {"event_message": FOREIGN_TEXT, "project": "other", "metadata": {key: f"value of {key}"[:60]}} for key in KEYS
    ]
    assert send(app, "/api/logs?source_name=postgres.logs", flat)[0] == 200
    answered = query_other_project(app, "select m.* from postgres_logs cross join unnest(metadata) as m")
    result_rows = [row for row in answered if isinstance(row, dict)]
    # Keys that are too long for the shape are omitted by `*`, and are read only by name.
    for key in (key for key in KEYS if is_listable(("metadata", key))):
        assert f"value of {key}"[:60] in [row.get(key) for row in result_rows], key


FROM_UNNESTED_EVENTS = "from edge_logs cross join unnest(metadata) as m"


def query_other_project(app: InProcessApp, sql: str) -> list[object]:
    return send_query(app, app.private_key_secret, sql, project="other")


def test_all_events_are_exported_and_imported(engine: str, app: InProcessApp, tmp_path: Path) -> None:
    status, _, received = app.send("GET", f"/api/streams/{STREAM}/events", b"", {})
    assert status == 200
    (tmp_path / "all.parquet").write_bytes(received)
    lines = list(read_stored_events(tmp_path / "all.parquet"))
    assert len(lines) == 3 + 3 * len(KEYS)
    with open_in_process_app(
        make_settings(tmp_path / "data", engine=fresh_database() if engine != "duckdb" else engine)
    ) as other:
        headers = {"content-type": "application/x-ndjson"}
        status, _, response = other.send("POST", f"/api/streams/{STREAM}/events", b"\n".join(lines), headers)
        assert status == 200, response
        assert answers_by_query(other) == answers_by_query(app)


def test_flushed_events_are_found_by_hostile_keys(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), DuckDBOptions())
    engine.create_stream_tables([stream("s")])
    # The stream gets many events for each key, because the engine stores frequent paths as columns.
    events = [
        Event(
            f"{at} {number}",
            NOW_US + at,
            "m",
            "p",
            json.dumps({key: f"v{at}", "n": {key: {key: at}}}),
            json.dumps({key: "x"}),
        )
        for at, key in enumerate(KEYS)
        for number in range(20)
    ]
    validated, learnt = ShapeInferrer(engine.shapes_by_stream).infer_stream_shape("s", events)
    engine.append([batch(*validated)])
    del learnt
    flush_pending(engine)
    for at, key in enumerate(KEYS):
        if key != "":
            name = quote_name(key)
            sql = f"select count(*) as c, cast(max(o.{name}.{name}) as int64) as d from s cross join unnest(metadata) as m cross join unnest(m.`n`) as o where m.{name} = 'v{at}'"
            assert [tuple(map(str, row)) for row in rows(engine, sql)] == [("20", str(at))], key
    engine.close()
