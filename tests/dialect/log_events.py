"""The same events in both engines, and in a table `logs` of ClickHouse that gives reference answers."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cordwood.app.checks import read_and_check_definitions
from cordwood.catalog.catalog import CatalogContents, CatalogSources
from cordwood.dialects import compile_sql_query, read_endpoint
from cordwood.engines.engine import AnswerLimits, Engine
from cordwood.ingest.accept import Intake
from cordwood.model.redaction import RedactionConfig, RedactionRules, RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.program import EndpointProgram
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.chdb_databases import bare_connection, fresh_database
from tests.spec_runner.world import ENGINES, Unstoppable

NOW = datetime(2026, 6, 22, 12, 0, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
LIMITS = AnswerLimits(max_rows=1000, timeout_seconds=60)
ENDPOINT_NAME = "logs.all.otel"

# For each source: its stream, and the field that names the project. Every fifth event has another project.
SOURCES = {
    "edge_logs": ("cloudflare.logs.prod", "project"),
    "postgres_logs": ("postgres.logs", "project"),
    "function_logs": ("deno-subhosting-events", "metadata.project_ref"),
    "auth_logs": ("gotrue.logs.prod", "project"),
    "realtime_logs": ("realtime.logs.prod", "metadata.project"),
    "my.app": ("my.app", "project"),
}
_METHODS = ("GET", "POST", "PUT", "get", "Überholen", "DELETE")
_NUMBERS = (
    "007",
    "+5",
    "-3",
    " 5",
    "5.5",
    "1e3",
    "",
    "abc",
    "3000000000",
    "-1",
    "nan",
    "inf",
    "12_3",
    "9223372036854775808",
)
SENT_STATUSES = (200, 201, 301, 404, 500, 503, 200, 200)
_LEVELS = ("info", "warning", "error", None)
_SEVERITIES = ("LOG", "ERROR", "FATAL", "PANIC", "WARNING")


def _metadata(source: str, at: int) -> dict[str, Any]:
    if source == "edge_logs":
        request: dict[str, Any] = {
            "method": _METHODS[at % 6],
            "path": f"/rest/v1/t{at % 7}",
            "url": "https://u",
            "headers": {"cf_ray": f"ray-{at}"},
        }
        response = {
            "status_code": SENT_STATUSES[at % 8],
            "origin_time": at + 0.5,
            "cached": at % 2 == 0,
            "tags": ["a", at % 3],
        }
        return {"request": request, "response": response, "empty": {}, "nothing": None, "odd": _NUMBERS[at % 14]}
    if source == "postgres_logs":
        parsed = {"error_severity": _SEVERITIES[at % 5], "user_name": "postgres", "session.id": f"s{at % 4}"}
        return {"parsed": parsed, "host": "db", "odd": _NUMBERS[(at * 3) % 14]}
    if source == "auth_logs":
        return {
            "level": _LEVELS[at % 4],
            "status": str(SENT_STATUSES[at % 8]),
            "path": "/token",
            "duration": at * 1000,
            "odd": at % 5,
        }
    return {
        "level": _LEVELS[(at + 1) % 4],
        "execution_time_ms": at + 0.25,
        "deep": {"a": {"b": {"c": at % 3}}},
        "flag": at % 2 == 1,
    }


def events_of(source: str, count: int = 40) -> list[dict[str, Any]]:
    """Return events of a source as a sender sends them, newest first."""
    _, project_field = SOURCES[source]
    events = []
    for at in range(count):
        project = "other" if at % 5 == 4 else "default"
        moment = NOW - timedelta(minutes=7 * at, seconds=at, microseconds=215_000 + at)
        event: dict[str, Any] = {
            "id": f"{list(SOURCES).index(source):08x}-0000-4000-8000-{at:012x}",
            "timestamp": moment.isoformat(),
            "event_message": _message(source, at),
            "metadata": _metadata(source, at),
        }
        if project_field == "project":
            event["project"] = project
        else:
            event["metadata"][project_field.removeprefix("metadata.")] = project
        if source == "my.app":
            event |= {"severity_text": "Debug", "level": "x", "service.name": f"svc{at % 2}", "flag": "top"}
        if source == "auth_logs" and at % 6 == 0:
            event["severityText"] = "notice"
        events.append(event)
    return events


def _message(source: str, at: int) -> str:
    if at % 4 == 0:
        nested = {
            "b": f"x{at}",
            "n": at,
            "f": at + 0.5,
            "t": at % 8 == 0,
            "list": [1, "two", {"three": 3}],
            "nil": None,
        }
        return json.dumps({"a": nested, "n": str(at), "ü": "ö"}, ensure_ascii=False)
    return f"{source} Ärger {at}: it's 100% \\ of_it\nline two GET | {SENT_STATUSES[at % 8]}"


def attributes(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the attribute map of an event, as the dialect's documentation defines it."""
    top = {key: value for key, value in event.items() if key not in ("id", "event_message", "timestamp", "metadata")}
    top = {key: value for key, value in top.items() if value is not None}
    return dict(_flatten({**event.get("metadata", {}), **top}, ""))


def _flatten(document: Mapping[str, Any], before: str) -> list[tuple[str, str]]:
    flattened: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            flattened += _flatten(value, f"{before}{key}.")
        elif value is not None:
            flattened.append((before + key, _text(value)))
    return flattened


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def severity(event: Mapping[str, Any]) -> str:
    metadata = event.get("metadata", {})
    candidates = (
        event.get("severity_text"),
        event.get("severityText"),
        metadata.get("level"),
        event.get("level"),
        metadata.get("parsed", {}).get("error_severity"),
    )
    return str(next((text for text in candidates if text), "INFO")).upper()


def project_of(event: Mapping[str, Any], source: str) -> str:
    _, project_field = SOURCES[source]
    return str(
        event["project"] if project_field == "project" else event["metadata"][project_field.removeprefix("metadata.")]
    )


def contents(folder: Path) -> CatalogContents:
    """Return the contents of a catalog with the shipped definitions and two streams from a file."""
    streams = folder / "streams.toml"
    streams.write_text('[[stream]]\nname = "my.app"\n\n[[stream]]\nname = "never.sent"\n')
    return read_and_check_definitions(CatalogSources(streams_file=streams))


class Cordwood:
    """An engine with the events, which is queried through the endpoint."""

    def __init__(
        self, name: str, folder: Path, contents: CatalogContents, extra: Mapping[str, Sequence[dict[str, Any]]] = {}
    ) -> None:
        kind = next(kind for kind in ENGINES if kind.name == name)
        self.engine: Engine = kind.open(folder, lambda: NOW_US, RedactionConfig(RedactionRules(), "key"))
        streams = {stream.name: stream for stream in contents.streams}
        self.engine.create_stream_tables(list(streams.values()))
        intake = Intake(self.engine, lambda: NOW_US)
        for source, (stream, _) in SOURCES.items():
            lines = "\n".join(map(json.dumps, [*events_of(source), *extra.get(source, ())]))
            asyncio.run(intake.ingest_body(streams[stream], "application/x-ndjson", lines.encode()))
        intake.close()
        endpoint = next(candidate for candidate in contents.endpoints if candidate.name == ENDPOINT_NAME)
        self.program: EndpointProgram = read_endpoint(endpoint)

    def rows(
        self, sql: str, parameters: Mapping[str, str] | None = None, mode: RedactMode | None = None
    ) -> list[dict[str, Any]]:
        redaction = RedactionPolicy(mode) if mode is not None else None
        statement = compile_sql_query(
            self.program, sql, self.engine.compile_target, self.engine.shapes_by_stream(), redaction
        )
        question = bind_parameters(
            statement, {"project": "default", **(parameters or {})}, NOW_US, self.engine.regex_error
        )
        answer = self.engine.answer(question, LIMITS, Unstoppable())
        names = list(statement.column_names)
        return [dict(zip(names, map(_cell, row), strict=True)) for part in answer.batches for row in part]

    def close(self) -> None:
        self.engine.close()


def _cell(value: Any) -> Any:
    return json.loads(bytes(value)) if type(value).__name__ == "Raw" else value


class PlainClickHouse:
    """Reference answers of ClickHouse from a table of the same events."""

    def __init__(self) -> None:
        self._database = fresh_database().rpartition("=")[2]
        self._connection = bare_connection()
        self._query(
            f"CREATE TABLE {self._database}.logs (id String, timestamp DateTime64(6, 'UTC'), project String, source String,"
            " event_message String, severity_text String, log_attributes Map(String, String)) ENGINE = Memory"
        )
        lines = [json.dumps(row, ensure_ascii=False) for source in SOURCES for row in _table_rows(source)]
        self._query(f"INSERT INTO {self._database}.logs FORMAT JSONEachRow\n" + "\n".join(lines))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        settings = "output_format_json_quote_64bit_integers = 0, output_format_json_quote_denormals = 0"
        answer = self._connection.query(
            f"SELECT * FROM ({_query_parameters(self._database, sql)}) SETTINGS {settings}, session_timezone = 'UTC'",
            "JSON",
        )
        document = json.loads(answer.bytes())
        times = {column["name"] for column in document["meta"] if "DateTime" in column["type"]}
        return [
            {key: _iso_time(cell) if key in times and cell else cell for key, cell in row.items()}
            for row in document["data"]
        ]

    def column_names(self, sql: str) -> list[str]:
        answer = self._connection.query(_query_parameters(self._database, sql), "JSONCompactEachRowWithNames")
        names: list[str] = json.loads(answer.bytes().splitlines()[0])
        return names

    def _query(self, sql: str) -> None:
        self._connection.query(sql)

    def close(self) -> None:
        self._connection.close()


def _query_parameters(database: str, sql: str) -> str:
    return sql.replace("FROM logs", f"FROM {database}.logs AS logs")


def _iso_time(text: str) -> str:
    seconds, _, decimals = text.replace(" ", "T").partition(".")
    return f"{seconds}.{decimals.ljust(6, '0')[:6]}"


def _table_rows(source: str) -> list[dict[str, Any]]:
    return [
        {
            "id": event["id"],
            "timestamp": event["timestamp"].replace("+00:00", "").replace("T", " "),
            "project": project_of(event, source),
            "source": source,
            "event_message": event["event_message"],
            "severity_text": severity(event),
            "log_attributes": attributes(event),
        }
        for event in events_of(source)
        if project_of(event, source) == "default"
    ]


RunQuery = Callable[[str], list[dict[str, Any]]]
