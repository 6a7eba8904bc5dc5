"""The questions of a log page and of a usage chart: calls of endpoints, with the equivalent queries of the peers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.events import END, PROJECTS, STREAM

PROJECT = PROJECTS[3]
# The table itself. Through a view, DuckDB would assemble the whole VARIANT of each event to read one path.
EVENTS = f'"{STREAM}"'
# Placeholders in ClickHouse's SQL for the table, its JSON column, and an event's metadata as JSON text.
LOGS_TABLE, PATHS_COLUMN, METADATA_TEXT = "{logs}", "{paths}", "{text}"
# A row of an answer. Its times are microseconds since 1970, as in the answers of the service.
Row = tuple[object, ...]


@dataclass(frozen=True)
class Goal:
    """The milliseconds that a question may take, and each peer's milliseconds on the same machine when the goal was
    set.
    """

    ms: float
    duckdb_ms: float
    postgres_ms: float


@dataclass(frozen=True)
class LogsQuery:
    """A query of VictoriaLogs over events from `start` on. `fields` are the fields of its answer that are compared."""

    text: str
    start: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class EndpointCall:
    """A call of an endpoint, with a name for reports."""

    name: str
    endpoint: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Question(EndpointCall):
    """A call of an endpoint with the equivalent queries of the peers.

    The answers must agree in `columns`. The peers' SQL selects these columns first, in this order, with times in
    microseconds.
    """

    columns: tuple[str, ...]
    duckdb: str
    postgres: str
    logs: LogsQuery
    clickhouse: str
    goal: Goal


def _time_before_end(**before: float) -> str:
    return (datetime.fromisoformat(END) - timedelta(**before)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_WEEK_BEFORE_END, _DAY_BEFORE_END, _HOUR_BEFORE_END = (
    _time_before_end(days=7),
    _time_before_end(days=1),
    _time_before_end(hours=1),
)
_AREAS = ("rest", "storage", "auth", "realtime")
# The host name in the URL begins with the project. Calls of usage.api-counts select it with a regular expression.
_URL_PATTERN = PROJECT
_RARE_PATTERN = "/f[0-9]+00[.]png"
_FREQUENT_PATTERN = r"(POST|PATCH) \| 500"
_RARE_TOKEN = "c4ca4238a0b92382"
_NEWEST_100 = "sort by (_time desc) limit 100"
_MESSAGE_FIELDS = ("id", "_msg")


def _clickhouse_since(start: str, comparison: str = ">=") -> str:
    return f"timestamp {comparison} toDateTime64('{start.rstrip('Z').replace('T', ' ')}', 6, 'UTC')"


def _counts_question(name: str, start: str, by: str, value: str, goal: Goal) -> Question:
    duckdb_condition = {"url": "regexp_matches(url, '{}')", "project": "project = '{}'"}[by]
    postgres_condition = {"url": "body->'metadata'->'request'->>'url' ~ '{}'", "project": "body->>'project' = '{}'"}[by]
    duckdb_counts = ", ".join(f"count(*) filter (path like '%/{area}%') as {area}" for area in _AREAS)
    read = "timestamp, project, metadata.request.url::varchar as url, metadata.request.path::varchar as path"
    postgres_counts = ", ".join(
        f"count(*) filter (where body->'metadata'->'request'->>'path' like '%/{area}%') as {area}" for area in _AREAS
    )
    logs_condition = {"url": '"metadata.request.url":~"{}"', "project": '{{project="{}"}}'}[by]
    logs_counts = ", ".join(f'count() if ("metadata.request.path":~"/{area}") as {area}' for area in _AREAS)
    clickhouse_condition = {"url": "match(url, '{}')", "project": "project = '{}'"}[by].format(value)
    clickhouse_counts = ", ".join(f"countIf(path LIKE '%/{area}%') AS {area}" for area in _AREAS)
    clickhouse_read = (
        f"timestamp, project, {PATHS_COLUMN}.request.url.:String AS url, {PATHS_COLUMN}.request.path.:String AS path"
    )
    return Question(
        name,
        f"bench.counts-by-{by}",
        {"start": start, by: value},
        ("hour", *_AREAS),
        f"select epoch_us(date_trunc('hour', timestamp)), {duckdb_counts} from (select {read} from {EVENTS})"
        f" where timestamp >= '{start}' and {duckdb_condition.format(value)} group by 1 order by 1",
        f"select (extract(epoch from date_trunc('hour', timestamp)) * 1000000)::bigint as hour, {postgres_counts}"
        f" from log_events where timestamp >= '{start}' and {postgres_condition.format(value)} group by 1 order by 1",
        LogsQuery(
            f"{logs_condition.format(value)} | stats by (_time:1h) {logs_counts} | sort by (_time)",
            start,
            ("_time", *_AREAS),
        ),
        f"SELECT toUnixTimestamp(toStartOfHour(timestamp)) * 1000000 AS hour, {clickhouse_counts}"
        f" FROM (SELECT {clickhouse_read} FROM {LOGS_TABLE}) WHERE {_clickhouse_since(start)} AND {clickhouse_condition}"
        " GROUP BY hour ORDER BY hour",
        goal,
    )


def _newest_question(name: str, start: str, goal: Goal) -> Question:
    # All stored events are of these seven days, so the call needs no time bound for them.
    more_parameters = {} if start == _WEEK_BEFORE_END else {"iso_timestamp_start": start}
    return Question(
        name,
        "logs.all",
        {"project": PROJECT, **more_parameters},
        ("id", "event_message"),
        f"select id, event_message, epoch_us(timestamp), metadata::json::varchar from {EVENTS}"
        f" where project = '{PROJECT}' and timestamp > '{start}' order by timestamp desc limit 100",
        "select id, event_message, timestamp, body from log_events"
        f" where body->>'project' = '{PROJECT}' and timestamp > '{start}' order by timestamp desc limit 100",
        LogsQuery(f'{{project="{PROJECT}"}} | {_NEWEST_100}', start, _MESSAGE_FIELDS),
        f"SELECT id, event_message, toUnixTimestamp64Micro(timestamp), {METADATA_TEXT} FROM {LOGS_TABLE}"
        f" WHERE project = '{PROJECT}' AND {_clickhouse_since(start, '>')} ORDER BY timestamp DESC LIMIT 100",
        goal,
    )


def _messages_question(
    name: str, endpoint: str, parameters: Mapping[str, str], conditions: tuple[str, str, str, str], goal: Goal
) -> Question:
    """Return a question for the newest messages that match.

    `conditions` are those of DuckDB, PostgreSQL, VictoriaLogs and ClickHouse.
    """
    tail = "order by timestamp desc limit 100"
    return Question(
        name,
        endpoint,
        parameters,
        ("id", "event_message"),
        f"select id, event_message, epoch_us(timestamp) from {EVENTS} where {conditions[0]} {tail}",
        f"select id, event_message, timestamp from log_events where {conditions[1]} {tail}",
        LogsQuery(f"{conditions[2]} | fields _time, id, _msg | {_NEWEST_100}", _WEEK_BEFORE_END, _MESSAGE_FIELDS),
        f"SELECT id, event_message, toUnixTimestamp64Micro(timestamp) FROM {LOGS_TABLE}"
        f" WHERE {conditions[3]} ORDER BY timestamp DESC LIMIT 100",
        goal,
    )


_SERVER_ERRORS_SQL = (
    "select id, event_message from edge_logs cross join unnest(metadata) as m cross join unnest(m.response) as r"
    " where r.status_code >= 500 order by timestamp desc limit 100"
)
_COUNTRIES_SQL = (
    "select c.country, count(*) as n from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r"
    " cross join unnest(r.cf) as c group by c.country order by n desc, c.country limit 10"
)
_RARE_SQL = (
    f"select id, event_message from edge_logs where regexp_contains(event_message, r'{_RARE_PATTERN}')"
    " order by timestamp desc limit 100"
)

QUESTIONS = (
    _counts_question(
        "counts, 7 days by hour, project by regex on url", _WEEK_BEFORE_END, "url", _URL_PATTERN, Goal(30, 25, 1466)
    ),
    _counts_question(
        "counts, 7 days by hour, project by equality", _WEEK_BEFORE_END, "project", PROJECT, Goal(8, 13, 866)
    ),
    _counts_question(
        "counts, last day by hour, project by regex on url", _DAY_BEFORE_END, "url", _URL_PATTERN, Goal(9, 6.5, 1165)
    ),
    _newest_question("newest 100 whole events of a project, 7 days", _WEEK_BEFORE_END, Goal(12, 19, 724)),
    _newest_question("newest 100 whole events of a project, last hour", _HOUR_BEFORE_END, Goal(5, 6, 775)),
    _messages_question(
        "newest 100 with status >= 500 of a project",
        "logs.all",
        {"project": PROJECT, "sql": _SERVER_ERRORS_SQL},
        (
            f"project = '{PROJECT}' and metadata.response.status_code::bigint >= 500",
            f"body->>'project' = '{PROJECT}' and (body->'metadata'->'response'->>'status_code')::bigint >= 500",
            f'{{project="{PROJECT}"}} "metadata.response.status_code":>=500',
            f"project = '{PROJECT}' AND {PATHS_COLUMN}.response.status_code.:Int64 >= 500",
        ),
        Goal(4, 1.2, 739),
    ),
    Question(
        "top countries of a project",
        "logs.all",
        {"project": PROJECT, "sql": _COUNTRIES_SQL},
        ("country", "n"),
        f"select metadata.request.cf.country::varchar, count(*) as n from {EVENTS}"
        f" where project = '{PROJECT}' group by 1 order by n desc, 1 limit 10",
        "select body->'metadata'->'request'->'cf'->>'country' as country, count(*) as n from log_events"
        f" where body->>'project' = '{PROJECT}' group by 1 order by n desc, 1 limit 10",
        LogsQuery(
            f'{{project="{PROJECT}"}} | stats by ("metadata.request.cf.country") count() as n'
            ' | sort by (n desc, "metadata.request.cf.country") limit 10',
            _WEEK_BEFORE_END,
            ("metadata.request.cf.country", "n"),
        ),
        f"SELECT {PATHS_COLUMN}.request.cf.country.:String AS country, count() AS n FROM {LOGS_TABLE}"
        f" WHERE project = '{PROJECT}' GROUP BY country ORDER BY n DESC, country LIMIT 10",
        Goal(4, 4.3, 1035),
    ),
    _messages_question(
        "rare regex on the messages of a project",
        "logs.all",
        {"project": PROJECT, "sql": _RARE_SQL},
        (
            f"project = '{PROJECT}' and regexp_matches(event_message, '{_RARE_PATTERN}')",
            f"body->>'project' = '{PROJECT}' and event_message ~ '{_RARE_PATTERN}'",
            f'{{project="{PROJECT}"}} _msg:~"{_RARE_PATTERN}"',
            f"project = '{PROJECT}' AND match(event_message, '{_RARE_PATTERN}')",
        ),
        Goal(12, 46, 728),
    ),
    _messages_question(
        "one token in the messages of all projects",
        "bench.messages-with",
        {"text": _RARE_TOKEN},
        (
            f"contains(event_message, '{_RARE_TOKEN}')",
            f"event_message like '%{_RARE_TOKEN}%'",
            f'"{_RARE_TOKEN}"',
            f"position(event_message, '{_RARE_TOKEN}') > 0",
        ),
        Goal(30, 76, 1744),
    ),
    _messages_question(
        "regex on the messages of all projects",
        "bench.messages-like",
        {"pattern": _FREQUENT_PATTERN},
        (
            f"regexp_matches(event_message, '{_FREQUENT_PATTERN}')",
            f"event_message ~ '{_FREQUENT_PATTERN}'",
            f"_msg:~{json.dumps(_FREQUENT_PATTERN)}",
            # In a literal of ClickHouse, a backslash is doubled.
            "match(event_message, '" + _FREQUENT_PATTERN.replace("\\", "\\\\") + "')",
        ),
        Goal(15, 11, 1432),
    ),
)
