"""Events with deep nesting or long keys are stored or quarantined, and do not change answers for other projects."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.ingest.event_values import MAX_NESTING_LEVELS, replace_deep_values_with_null
from cordwood.model.event import MAX_LISTED_PATH_CHARACTERS
from tests.attack.test_pinned_queries import ask, make_settings, send
from tests.chdb_databases import fresh_database

INGEST_ADDRESS = "/api/logs?source_name=cloudflare.logs.prod"
MEBIBYTE = 2**20
# Queries of a project that sends no deeply nested events.
QUERIES = (
    "select id, event_message, metadata from edge_logs order by id",
    "select m.* from edge_logs cross join unnest(metadata) as m order by m.a.b",
    "select m.a.b, count(*) as n from edge_logs cross join unnest(metadata) as m group by 1 order by 1",
    "select a.b from edge_logs cross join unnest(metadata) as m cross join unnest(m.a) as a order by 1",
    "select l from edge_logs cross join unnest(metadata) as m cross join unnest(m.l) as l order by 1",
    "select m.never_sent from edge_logs cross join unnest(metadata) as m",
)
NESTING_KINDS = ("object", "array", "mixed", "either")


def nested(kind: str, levels: int, inner: str = "1") -> str:
    opening, closing = {
        "object": ('{"a":', "}"),
        "array": ("[", "]"),
        "mixed": ('{"a":[', "]}"),
        "either": ('[{"x":1},', "]"),
    }[kind]
    levels = {"mixed": levels // 2, "either": levels - 1}.get(kind, levels)
    return opening * levels + inner + closing * levels


def post_events(app: InProcessApp, *metadata: str, project: str = "poison") -> tuple[int, dict[str, object]]:
    """Send one event for each metadata, which is given as JSON text, because it may be too deep for `json.dumps`."""
    events = (f'{{"event_message":"x","project":"{project}","metadata":{value}}}' for value in metadata)
    body = f"[{','.join(events)}]".encode()
    status, _, answer = app.send("POST", INGEST_ADDRESS, body, {"content-type": "application/json"})
    return status, json.loads(answer)


def send_ordinary(app: InProcessApp) -> None:
    for number in range(3):
        metadata = json.dumps({"project": "default", "a": {"b": number}, "l": [number, "x"]})
        assert post_events(app, metadata, project="default") == (200, RECEIPT | {"accepted": 1})


RECEIPT: dict[str, object] = {"message": "Logged!", "accepted": 0, "duplicates": 0, "quarantined": 0, "reasons": []}


def answers_by_query(app: InProcessApp) -> list[tuple[int, str]]:
    _, answer = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})
    key = str(json.loads(answer)["token"])
    return [ask(app, key, sql=sql) for sql in QUERIES]


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return fresh_database() if request.param == "clickhouse" else "duckdb"


@pytest.fixture
def app(engine: str, tmp_path: Path) -> Iterator[InProcessApp]:
    with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
        yield app


def query_count(app: InProcessApp, sql: str) -> object:
    status, answer = ask(app, app.private_key_secret, project="poison", sql=sql)
    assert status == 200, answer
    return json.loads(answer)["result"][0]["n"]


@pytest.mark.parametrize("kind", NESTING_KINDS)
def test_deep_events_change_no_answers_of_others_before_or_after_a_restart(
    engine: str, tmp_path: Path, kind: str
) -> None:
    with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
        send_ordinary(app)
        before = answers_by_query(app)
        assert all(status == 200 for status, _ in before)
        for levels in (30, 33, 60, 90, MAX_NESTING_LEVELS):
            assert post_events(app, nested(kind, levels)) == (200, RECEIPT | {"accepted": 1})
        assert answers_by_query(app) == before
    with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
        assert answers_by_query(app) == before
        assert post_events(app, nested(kind, 30)) == (200, RECEIPT | {"accepted": 1})
        assert answers_by_query(app) == before
        send_ordinary(app)
        assert query_count(app, "select count(*) as n from edge_logs") == 6
        records = "select count(m.x) as n from edge_logs cross join unnest(metadata) as m"
        assert query_count(app, records) == (6 if kind == "either" else 0)


def test_a_data_folder_with_unlimited_paths_is_opened(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open a data folder that was written when paths in shapes had no limits.

    Regression: after a deep event in such a folder, every ingest request failed with status 500.
    """
    with monkeypatch.context() as unbounded:
        unbounded.setattr("cordwood.model.event.MAX_LISTED_PATH_STEPS", 10**6)
        unbounded.setattr("cordwood.model.event.MAX_LISTED_PATH_CHARACTERS", 10**9)
        with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
            send_ordinary(app)
            before = answers_by_query(app)
            assert post_events(app, nested("object", 40), nested("object", MAX_NESTING_LEVELS))[0] == 200
    for _ in range(2):
        with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
            assert answers_by_query(app) == before
            assert post_events(app, nested("object", 40)) == (200, RECEIPT | {"accepted": 1})
            assert query_count(app, count_below(38, "is not null")) in {3, 4}
            assert post_events(app, '{"a":1}', project="third") == (200, RECEIPT | {"accepted": 1})


@pytest.mark.parametrize("step", ["ab", "never_sent"])
def test_a_long_path_of_ambiguous_names_is_compiled(app: InProcessApp, step: str) -> None:
    """Compile a path in which each name matches two keys that differ only in case.

    Regression: the compiler's work doubled with each step of the path.
    """
    rng = random.Random(3)
    for _ in range(12):
        inner = "1"
        for _ in range(30):
            inner = rng.choice(('{"aB":%s}', '{"Ab":%s}')) % inner
        assert post_events(app, inner) == (200, RECEIPT | {"accepted": 1})
    path = f".{step}" * 32
    sql = f"select m{path} as x from edge_logs cross join unnest(metadata) as m where m{path} is null"
    status, answer = ask(app, app.private_key_secret, project="poison", sql=sql)
    assert (status, len(json.loads(answer).get("result", ()))) == (200, 12), answer
    # With a sub-query for each step, each sub-query reads all keys of the previous one. The plan may exceed its size
    # limit.
    ctes = ", ".join(f"c{at} as (select c.m.{step} as m from c{at - 1} as c)" for at in range(1, 31))
    status, answer = ask(
        app,
        app.private_key_secret,
        project="poison",
        sql=f"with c0 as (select metadata as m from edge_logs), {ctes} select m as x from c30",
    )
    assert (status, '"limit.plan"' in answer) in {(200, False), (422, True)}, answer


def count_below(steps: int, condition: str) -> str:
    """Return a query that counts events for which `condition` holds at a path `steps` levels below the metadata."""
    path = ".".join("a" for _ in range(steps))
    return f"select count(*) as n from edge_logs cross join unnest(metadata) as m where m.{path} {condition}"


def test_a_deep_event_is_returned_completely_and_read_below_the_listed_paths(app: InProcessApp) -> None:
    assert post_events(app, nested("object", 60, '{"deep":"found"}'))[0] == 200
    assert query_count(app, count_below(60, ".deep = 'found'").replace(" .", ".")) == 1
    unnested = "select count(*) as n from edge_logs cross join unnest(metadata) as m cross join unnest(m.X) as d"
    assert query_count(app, unnested.replace("X", ".".join("a" * 31))) == 1
    assert query_count(app, unnested.replace("X", ".".join("a" * 45))) == 1
    status, answer = ask(app, app.private_key_secret, project="poison", sql="select metadata from edge_logs")
    assert status == 200
    assert '"deep":"found"' in answer


@pytest.mark.parametrize("kind", NESTING_KINDS)
def test_an_event_that_is_too_deep_is_quarantined_and_the_others_are_stored(app: InProcessApp, kind: str) -> None:
    too_deep = [nested(kind, levels) for levels in (MAX_NESTING_LEVELS + 2, 400, 960, 1100, 20_000)]
    status, answer = post_events(app, *too_deep, '{"a":1}')
    assert (status, answer["accepted"], answer["quarantined"]) == (200, 1, len(too_deep))
    assert "nested" in str(answer["reasons"])
    for levels in range(MAX_NESTING_LEVELS + 2, 1050, 97):
        assert post_events(app, nested(kind, levels), '{"a":1}')[1]["quarantined"] == 1
    pinned = json.loads(send(app, "/api/access-tokens", {"scopes": "ingest", "pins": {"project": "poison"}})[1])
    for levels in (600, 900, 940):
        event = (
            f'{{"timestamp":{nested(kind, levels)},"extra":{nested(kind, levels)},"metadata":{nested(kind, levels)}}}'
        )
        sent = {"content-type": "application/json", "x-api-key": str(pinned["token"])}
        status, _, answer_to_one = app.send("POST", INGEST_ADDRESS, event.encode(), sent)
        assert (status, json.loads(answer_to_one)["quarantined"]) == (200, 1), answer_to_one


def test_the_paths_of_an_event_take_space_in_proportion_to_the_event(app: InProcessApp, tmp_path: Path) -> None:
    """Store events with long keys and deep nesting, which must not take much more space than their JSON.

    Regression: a 110 KB event of empty objects under one long key took 190 MB on disk, and 750 KB of nested objects
    took 530 MB.
    """
    wide = json.dumps({"k" * 100_000: {f"a{number}": {} for number in range(1000)}})
    long_key = "k" * 1500
    spine = f'{{"{long_key}":' * MAX_NESTING_LEVELS + "1" + "}" * MAX_NESTING_LEVELS
    assert post_events(app, wide, spine) == (200, RECEIPT | {"accepted": 2})
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert stored < 10 * MEBIBYTE
    assert query_count(app, "select count(*) as n from edge_logs where length(to_json_string(metadata)) > 100000") == 2


def test_a_key_that_is_too_long_for_the_shape_is_read_by_its_name(app: InProcessApp) -> None:
    key = "k" * (MAX_LISTED_PATH_CHARACTERS + 1)
    assert post_events(app, f'{{"{key}":{{"in":["x","y"]}}}}')[0] == 200
    sql_template = (
        "select count(*) as n from edge_logs cross join unnest(metadata) as m cross join unnest(m.`K`.`in`) as one"
    )
    assert query_count(app, sql_template.replace("K", key)) == 2


@pytest.mark.parametrize(
    ("text", "levels", "cut"),
    [
        ('{"a":[1,{"b":{}},"]"],"d":{}}', 2, '{"a":[1,null,"]"],"d":{}}'),
        ('[[[]],[[[1]]],"[[["]', 2, '[[null],[null],"[[["]'),
        ('["\\"[[[",[]]', 1, '["\\"[[[",null]'),
        ("[1]", 1, "[1]"),
        ("5", 1, "5"),
    ],
)
def test_json_is_truncated_below_a_nesting_level(text: str, levels: int, cut: str) -> None:
    assert replace_deep_values_with_null(text, levels) == cut
