"""The questions of a log page and of a usage chart: as our callers ask, and as their equals in the peers' own SQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.events import END, PROJECTS, STREAM

PROJECT = PROJECTS[3]
# Said with the table's own name: through a view, DuckDB puts every event together to read one path.
EVENTS = f'"{STREAM}"'
# What a caller sees of times: microseconds since 1970.
Row = tuple[object, ...]


@dataclass(frozen=True)
class Aim:
    """How many milliseconds a question may take, and how many it took the peers where and when that was written down."""

    ms: float
    duckdb: float
    postgres: float


@dataclass(frozen=True)
class Asked:
    """What a caller asks of an endpoint."""

    name: str
    endpoint: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Question(Asked):
    """`columns` are those that are compared; `duckdb` and `postgres` give them in that order, times in microseconds."""

    columns: tuple[str, ...]
    duckdb: str
    postgres: str
    aim: Aim


def _before_end(**before: float) -> str:
    return (datetime.fromisoformat(END) - timedelta(**before)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_WEEK, _DAY, _HOUR = _before_end(days=7), _before_end(days=1), _before_end(hours=1)
_AREAS = ("rest", "storage", "auth", "realtime")
# A project is a part of the address: told by a pattern, as callers of usage.api-counts tell it.
_URL = PROJECT
_RARE = "/f[0-9]+00[.]png"
_ANY = r"(POST|PATCH) \| 500"
_TOKEN = "c4ca4238a0b92382"


def _counts(name: str, start: str, by: str, value: str, aim: Aim) -> Question:
    here = {"url": "regexp_matches(url, '{}')", "project": "project = '{}'"}[by]
    there = {"url": "body->'metadata'->'request'->>'url' ~ '{}'", "project": "body->>'project' = '{}'"}[by]
    duckdb_counts = ", ".join(f"count(*) filter (path like '%/{area}%') as {area}" for area in _AREAS)
    read = "timestamp, project, metadata.request.url::varchar as url, metadata.request.path::varchar as path"
    postgres_counts = ", ".join(
        f"count(*) filter (where body->'metadata'->'request'->>'path' like '%/{area}%') as {area}" for area in _AREAS
    )
    return Question(
        name,
        f"bench.counts-by-{by}",
        {"start": start, by: value},
        ("hour", *_AREAS),
        f"select epoch_us(date_trunc('hour', timestamp)), {duckdb_counts} from (select {read} from {EVENTS})"
        f" where timestamp >= '{start}' and {here.format(value)} group by 1 order by 1",
        f"select (extract(epoch from date_trunc('hour', timestamp)) * 1000000)::bigint as hour, {postgres_counts}"
        f" from log_events where timestamp >= '{start}' and {there.format(value)} group by 1 order by 1",
        aim,
    )


def _newest(name: str, start: str, aim: Aim) -> Question:
    more = {} if start == _WEEK else {"iso_timestamp_start": start}
    return Question(
        name,
        "logs.all",
        {"project": PROJECT, **more},
        ("id", "event_message"),
        f"select id, event_message, epoch_us(timestamp), metadata::json::varchar from {EVENTS}"
        f" where project = '{PROJECT}' and timestamp > '{start}' order by timestamp desc limit 100",
        "select id, event_message, timestamp, body from log_events"
        f" where body->>'project' = '{PROJECT}' and timestamp > '{start}' order by timestamp desc limit 100",
        aim,
    )


def _messages(name: str, endpoint: str, parameters: Mapping[str, str], wheres: tuple[str, str], aim: Aim) -> Question:
    tail = "order by timestamp desc limit 100"
    return Question(
        name,
        endpoint,
        parameters,
        ("id", "event_message"),
        f"select id, event_message, epoch_us(timestamp) from {EVENTS} where {wheres[0]} {tail}",
        f"select id, event_message, timestamp from log_events where {wheres[1]} {tail}",
        aim,
    )


_FAILURES = (
    "select id, event_message from edge_logs cross join unnest(metadata) as m cross join unnest(m.response) as r"
    " where r.status_code >= 500 order by timestamp desc limit 100"
)
_COUNTRIES = (
    "select c.country, count(*) as n from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r"
    " cross join unnest(r.cf) as c group by c.country order by n desc, c.country limit 10"
)
_RARE_IN_SQL = f"select id, event_message from edge_logs where regexp_contains(event_message, r'{_RARE}') order by timestamp desc limit 100"

QUESTIONS = (
    _counts("counts, 7 days by hour, project by regex on url", _WEEK, "url", _URL, Aim(30, 25, 1466)),
    _counts("counts, 7 days by hour, project by equality", _WEEK, "project", PROJECT, Aim(8, 13, 866)),
    _counts("counts, last day by hour, project by regex on url", _DAY, "url", _URL, Aim(9, 6.5, 1165)),
    _newest("newest 100 whole events of a project, 7 days", _WEEK, Aim(12, 19, 724)),
    _newest("newest 100 whole events of a project, last hour", _HOUR, Aim(5, 6, 775)),
    _messages(
        "newest 100 with status >= 500 of a project",
        "logs.all",
        {"project": PROJECT, "sql": _FAILURES},
        (
            f"project = '{PROJECT}' and metadata.response.status_code::bigint >= 500",
            f"body->>'project' = '{PROJECT}' and (body->'metadata'->'response'->>'status_code')::bigint >= 500",
        ),
        Aim(4, 1.2, 739),
    ),
    Question(
        "top countries of a project",
        "logs.all",
        {"project": PROJECT, "sql": _COUNTRIES},
        ("country", "n"),
        f"select metadata.request.cf.country::varchar, count(*) as n from {EVENTS}"
        f" where project = '{PROJECT}' group by 1 order by n desc, 1 limit 10",
        "select body->'metadata'->'request'->'cf'->>'country' as country, count(*) as n from log_events"
        f" where body->>'project' = '{PROJECT}' group by 1 order by n desc, 1 limit 10",
        Aim(4, 4.3, 1035),
    ),
    _messages(
        "rare regex on the messages of a project",
        "logs.all",
        {"project": PROJECT, "sql": _RARE_IN_SQL},
        (
            f"project = '{PROJECT}' and regexp_matches(event_message, '{_RARE}')",
            f"body->>'project' = '{PROJECT}' and event_message ~ '{_RARE}'",
        ),
        Aim(12, 46, 728),
    ),
    _messages(
        "one token in the messages of all projects",
        "bench.messages-with",
        {"text": _TOKEN},
        (f"contains(event_message, '{_TOKEN}')", f"event_message like '%{_TOKEN}%'"),
        Aim(30, 76, 1744),
    ),
    _messages(
        "regex on the messages of all projects",
        "bench.messages-like",
        {"pattern": _ANY},
        (f"regexp_matches(event_message, '{_ANY}')", f"event_message ~ '{_ANY}'"),
        Aim(15, 11, 1432),
    ),
)
