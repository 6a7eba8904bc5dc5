"""Attribute maps that a query only returns are built after its rows are fetched, and equal the engine's maps."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from cordwood.dialects import compile_sql_query
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.deferred_columns import (
    compute_deferred_columns,
    encode_attribute_maps,
    format_iso_times,
)
from cordwood.engines.engine import Engine
from cordwood.errors import OutOfMemory
from cordwood.ingest.accept import Intake
from cordwood.model.datatype import Cell
from cordwood.model.redaction import RedactMode
from cordwood.sql.plan import EventRange
from cordwood.sql.stages import AttributeMapColumn
from tests.dialect.log_events import NOW, NOW_US, Cordwood, contents

EVENT_COUNT = 400
KEYS = ("a", "b", "a.b", "", ".", "project", "level", "metadata", "ü", 'q"', "\\", "{", "}", ":", ",", "[", "Infinity")
TEXTS = (
    "",
    "x",
    "Ärger",
    '"',
    '\\"',
    "\\",
    "{",
    "}",
    "[]",
    ":{",
    '":{',
    ",",
    "a,",
    "\n",
    "\x01",
    "\x7f",
    "NaN",
    "null",
)
# Unusual numbers, and texts that look like the engine's spelling of infinity.
ODD_VALUES = ("Infinity", "\ue000Infinity", "-Infinity", 1, -0.0, 1.50, 1e22, 2**63, 10**30, 0.1, True, False, None)


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth else 6)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 6:
        return rng.choice(ODD_VALUES)
    if kind == 6:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return _object(rng, depth - 1)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    return {rng.choice(KEYS): _value(rng, depth) for _ in range(rng.randrange(4))}


def _nested(depth: int) -> dict[str, Any]:
    return {"k": _nested(depth - 1) if depth else "end", "n": depth}


def _event(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    event: dict[str, Any] = {
        "id": f"{number:05}",
        "timestamp": NOW.isoformat(),
        "event_message": "m",
        "project": "default",
    }
    event |= {f"top{key}": value for key, value in _object(rng, 2).items() if number % 3 == 0}
    if number % 5 == 0:
        event |= {"a": _value(rng, 2), "level": None}
    odd_metadata: dict[int, Any] = {
        1: "a text",
        2: ["a", {"b": 1}],
        3: 5,
        4: None,
        5: {"deep": _nested(12)},
        6: {"long": "x" * 17_000, "inner": {"a": 1}},
        7: {"long": "ü" * 9_000, "inner": {"a": 1}},
        8: {},
        9: {"k" * 100: {"k" * 27: {"x": 1}, "k" * 28: {"x": 1, "y": None}}},
        10: {"ü" * 64: {"x": 1}, "ü" * 65: {"x": [1]}},
        11: {"inner": {f"k{at}": at for at in range(511)}},
        12: {"inner": {f"k{at}": at for at in range(512)}},
        13: {"text": '":' * 600, "inner": {"a": 1}},
    }
    event["metadata"] = odd_metadata.get(number, _object(rng, 4))
    return event


@pytest.fixture(scope="module", params=["in memory", "flushed", "recent"])
def engine_with_events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cordwood]:
    folder = tmp_path_factory.mktemp("maps")
    events = [_event(number) for number in range(EVENT_COUNT)]
    opened = Cordwood("duckdb", folder / "duckdb", contents(folder), {"my.app": events})
    if request.param != "in memory":
        _flush_events(opened.engine, fills_recent_cache=request.param == "recent")
    yield opened
    opened.close()


def _flush_events(engine: Engine, *, fills_recent_cache: bool) -> None:
    assert isinstance(engine, DuckDBEngine)
    store = engine._storage.get_store("my.app")
    with engine._session.cursor() as cursor:
        while chunk := store.take_chunk(whole_groups_only=False):
            store.flush(chunk, cursor)
    if fills_recent_cache:
        engine._storage.recent_cache.fill_recent_table(store)


def _rows(engine_with_events: Cordwood, sql: str, mode: RedactMode | None = None) -> list[dict[str, Any]]:
    where = "WHERE source = 'my.app' AND event_message = 'm'"
    return engine_with_events.rows(f"{sql} {where} ORDER BY timestamp DESC, id LIMIT 390", mode=mode)


@pytest.mark.parametrize("mode", [None, *RedactMode])
def test_a_map_that_is_returned_equals_the_map_that_a_sub_query_builds(
    engine_with_events: Cordwood, mode: RedactMode | None
) -> None:
    maps_of_result = _rows(engine_with_events, "SELECT id, log_attributes FROM logs", mode)
    maps_of_sub_query = "SELECT id, timestamp, source, event_message, log_attributes FROM logs"
    read = _rows(engine_with_events, f"SELECT id, log_attributes FROM ({maps_of_sub_query})", mode)
    assert len(maps_of_result) == 390
    for result_row, sub_query_row in zip(maps_of_result, read, strict=True):
        assert list(result_row["log_attributes"].items()) == list(sub_query_row["log_attributes"].items()), result_row[
            "id"
        ]


def test_maps_and_times_keep_the_selected_order_of_columns(engine_with_events: Cordwood) -> None:
    sql = (
        "SELECT log_attributes AS one, timestamp, toStartOfHour(timestamp) AS hour, log_attributes AS two, id FROM logs"
    )
    for row in _rows(engine_with_events, sql):
        assert list(row) == ["one", "timestamp", "hour", "two", "id"]
        assert row["one"] == row["two"]
        assert (row["timestamp"], row["hour"]) == ("2026-06-22T12:00:00.000000",) * 2


def test_returned_maps_of_several_streams_equal_those_of_a_sub_query(engine_with_events: Cordwood) -> None:
    order = "ORDER BY timestamp DESC, id LIMIT 500"
    answered = engine_with_events.rows(f"SELECT id, timestamp, log_attributes FROM logs {order}")
    read = engine_with_events.rows(
        f"SELECT id, timestamp, log_attributes FROM (SELECT id, timestamp, log_attributes FROM logs) {order}"
    )
    assert answered == read
    assert len({row["id"] for row in answered}) == 500


def test_a_page_of_maps_can_be_read_from_the_recent_cache(engine_with_events: Cordwood) -> None:
    sql = "SELECT id, timestamp, event_message, log_attributes FROM logs WHERE source = 'my.app' ORDER BY timestamp DESC LIMIT 100"
    statement = compile_sql_query(
        engine_with_events.program,
        sql,
        engine_with_events.engine.compile_target,
        engine_with_events.engine.shapes_by_stream(),
        None,
    )
    assert statement.plan.find_variant(EventRange.RECENTLY_CACHED) is not None
    assert "list_transform" not in statement.sql
    assert "strftime" not in statement.sql


# Metadata just below or above a limit of expansion, each with a key that its attribute map must have.
EXPANSION_LIMITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"a" * 64: {"b" * 63: {"x": 1}}}, f"{'a' * 64}.{'b' * 63}.x"),
    ({"a" * 64: {"b" * 64: {"x": 1}}}, f"{'a' * 64}.{'b' * 64}"),
    ({"ü" * 64: {"x": 1}}, f"{'ü' * 64}.x"),
    ({"ü" * 65: {"x": 1}}, "ü" * 65),
    ({"inner": {f"k{at}": at for at in range(511)}}, "inner.k510"),
    ({"inner": {f"k{at}": at for at in range(512)}}, "inner"),
    ({"long": "x" * 16_200, "inner": {"a": 1}}, "inner.a"),
    ({"long": "x" * 16_400, "inner": {"a": 1}}, "inner"),
    (_nested(12), f"{'k.' * 12}k"),
)


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_returned_maps_have_the_keys_of_map_keys_on_both_engines(tmp_path: Path, engine: str) -> None:
    """Check the returned maps, and the keys that `mapKeys` returns for the same events."""
    common = {"timestamp": NOW.isoformat(), "event_message": "m", "project": "default"}
    events = [{"id": str(at), **common, "metadata": metadata} for at, (metadata, _) in enumerate(EXPANSION_LIMITS)]
    engine_with_events = Cordwood(engine, tmp_path / engine, contents(tmp_path), {"my.app": events})
    for columns in ("id, log_attributes AS found", "id, mapKeys(log_attributes) AS found"):
        for row in _rows(engine_with_events, f"SELECT {columns} FROM logs"):
            assert EXPANSION_LIMITS[int(row["id"])][1] in row["found"], row["id"]
    engine_with_events.close()


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_the_limit_of_object_members_ignores_white_space(tmp_path: Path, engine: str) -> None:
    """Send JSON with various white space, because ClickHouse stores events as they were sent."""
    engine_with_events = Cordwood(engine, tmp_path / engine, contents(tmp_path))
    (stream,) = [stream for stream in contents(tmp_path).streams if stream.name == "my.app"]
    intake = Intake(engine_with_events.engine, lambda: NOW_US)
    for colon in (":", " : ", "\n:", "\t\r:"):
        members = ",".join(f'"k{at}"{colon}{at}' for at in range(512))
        event = f'[{{"event_message":"m","project":"default","metadata":{{"inner":{{{members}}}}}}}]'
        asyncio.run(intake.ingest_body(stream, "application/json", event.encode()))
    intake.close()
    for columns in ("log_attributes AS found", "mapKeys(log_attributes) AS found"):
        result_rows = engine_with_events.rows(
            f"SELECT {columns} FROM logs WHERE source = 'my.app' AND event_message = 'm' LIMIT 9"
        )
        assert len(result_rows) == 4
        assert all("inner" in row["found"] for row in result_rows)
    engine_with_events.close()


def _event_with_metadata(number: int, metadata: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    common = {"timestamp": NOW.isoformat(), "event_message": "m", "project": "default"}
    return {"id": f"e{number}", **common, "metadata": metadata, **top}


# Metadata and other top-level keys of events in which several fields have the same flattened key, or in which an engine
# spells a number otherwise than JSON.
EVENTS_WITH_AMBIGUOUS_KEYS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"cost": 0.00001, "big": 1e21, "f": 1e20 + 0.5, "neg": -1.5e-9, "whole": 10**30, "yes": True, "e": "1e-05"}, {}),
    ({"cost": "1e-05", "big": [1e21], "f": {"x": 1e-5}, "neg": "inf", "yes": 1e-5, "e": 1e-5}, {"top": 1e-7}),
    ({"a.b": "dotted", "a": {"b": "nested"}}, {}),
    ({"a": {"b": "nested"}, "a.b": "dotted"}, {}),
    ({"a.b": {"c": "x"}, "a.b.c": "y", "a": {"b": None, "b.c": "z"}}, {}),
    ({"": "empty", "a": {"": "inner", ".": 1}, ".": "dot", "a..": 2, "b.": 3}, {"t": {"": 4}}),
    ({"t": {"b": "metadata"}, "t.c": 1}, {"t.b": "top", "t": {"c": 2}}),
    ({"t.b": "metadata"}, {"t": {"b": "top"}}),
    ({"project": {"x": "hidden"}, "project.x": "read"}, {}),
)


def _without_sign_of_zero(text: str) -> str:
    """Ignore the sign of zero, which ClickHouse's own functions for JSON keep or drop."""
    return "0" if text == "-0" else text


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_a_subscript_returns_the_text_of_the_map(tmp_path: Path, engine: str) -> None:
    ambiguous = [_event_with_metadata(at, *parts) for at, parts in enumerate(EVENTS_WITH_AMBIGUOUS_KEYS)]
    events = [*ambiguous, *(_event(number) for number in range(14, 200))]
    compared = Cordwood(engine, tmp_path / engine, contents(tmp_path), {"my.app": events})
    maps = {row["id"]: row["log_attributes"] for row in _rows(compared, "SELECT id, log_attributes FROM logs")}
    assert maps["e2"] == maps["e3"] == {"project": "default", "a.b": "nested"}
    keys = sorted({key for attributes in maps.values() for key in attributes})
    literals = ["'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'" for key in keys]
    different = []
    for start in range(0, len(keys), 25):
        columns = [f"log_attributes[{literal}] AS c{at}" for at, literal in enumerate(literals[start : start + 25])]
        for row in _rows(compared, f"SELECT id, {', '.join(columns)} FROM logs"):
            attributes = maps[row.pop("id")]
            different += [
                (key, text, attributes)
                for key, text in zip(keys[start : start + 25], row.values(), strict=True)
                if _without_sign_of_zero(text) != _without_sign_of_zero(attributes.get(key, ""))
            ]
    assert not different, {(text, attributes.get(key)) for key, text, attributes in different}
    for row in _rows(compared, "SELECT id, mapKeys(log_attributes) AS k, mapValues(log_attributes) AS v FROM logs"):
        assert list(zip(row["k"], row["v"], strict=True)) == list(maps[row["id"]].items())
    compared.close()


def test_times_are_formatted_as_the_engine_formats_them() -> None:
    spans = (
        0,
        1,
        10**6,
        -1,
        -(10**12),
        253_402_300_799_999_999,
        253_402_300_800_000_000,
        4 * 10**17,
        -62_135_596_800_000_000,
    )
    micros = [*spans, *(random.Random(at).randrange(-6 * 10**16, 6 * 10**17) for at in range(500))]
    with duckdb.connect() as connection:
        sql = "SELECT strftime(make_timestamp(unnest($micros)), '%Y-%m-%dT%H:%M:%S.%f')"
        expected = [text for (text,) in connection.execute(sql, {"micros": micros}).fetchall()]
    assert format_iso_times(micros) == expected
    assert format_iso_times([None]) == [None]


def test_numbers_outside_json_are_strings_as_the_engine_prints_them() -> None:
    event = '{"a":Infinity,"b":[NaN,"NaN",1.50],"c":"Infinity","d":{"e":-Infinity,"f":"\ue000NaN"}}'
    (attribute_map,) = encode_attribute_maps([(event, '{"x":NaN}', None)], 8)
    expected = {
        "x": "NaN",
        "a": "Infinity",
        "b": '[NaN,"NaN",1.50]',
        "c": "Infinity",
        "d.e": "-Infinity",
        "d.f": "\ue000NaN",
    }
    assert msgspec.json.decode(_parse_cell(attribute_map)) == expected


def _parse_cell(cell: Cell) -> bytes:
    assert isinstance(cell, msgspec.Raw)
    return bytes(cell)


def test_events_with_long_keys_of_nested_objects_are_expanded_in_bounded_memory() -> None:
    """Limit the memory for maps of events with long keys.

    If the maps of a page exceed the limit, the fault is OutOfMemory. Events with keys of thousands of characters are
    not expanded.
    """
    leaves = ",".join(f'"{number:x}":1' for number in range(500))
    path = [f'{{"{letter * 63}":' for letter in "ab"]
    event = f"{''.join(path)}{{{leaves}}}{'}' * len(path)}"
    columns: list[list[str | None]] = [[event] * 1000, [None] * 1000, [None] * 1000]
    maps = [AttributeMapColumn(position, 0, 1, 2, levels) for position, levels in enumerate((8, 8, 9, 10))]
    ((_, cells),) = compute_deferred_columns(maps[:1], columns)
    assert len(msgspec.json.decode(_parse_cell(cells[0]))) == 500
    assert sum(len(_parse_cell(cell)) for cell in cells) < 2**27
    for repeated in (maps[:2], maps[1:]):
        with pytest.raises(OutOfMemory, match="too large"):
            list(compute_deferred_columns(repeated, columns))
    columns[0] = [event.replace("a" * 63, "a" * 8000)] * 1000
    assert len(list(compute_deferred_columns(maps, columns))) == 4
