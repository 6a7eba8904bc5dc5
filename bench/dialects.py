"""`python -m bench.dialects`: the cost of questions in ClickHouse SQL, as a multiple of those in BigQuery SQL.

A figure is the minimum processor time of the whole process over many rounds, with both dialects measured round-robin.
Therefore other load on the machine changes it little. EVENTS=2000000 sets the number of stored events.
"""

import sys
from functools import partial
from urllib.parse import urlencode

from bench.events import END, PROJECTS
from bench.redaction import loaded_app, min_processor_ms
from cordwood.app.in_process import InProcessApp

_QUERIED_PROJECT = PROJECTS[3]
_EDGE_LOGS = "FROM logs WHERE source = 'edge_logs'"
_UNNEST = "cross join unnest(metadata) as m"

# Each question: its name, its query in BigQuery's SQL, and the same query in ClickHouse's SQL.
QUESTIONS = (
    (
        "newest 100 messages",
        "select id, timestamp, event_message from edge_logs order by timestamp desc limit 100",
        f"SELECT id, timestamp, event_message {_EDGE_LOGS} ORDER BY timestamp DESC LIMIT 100",
    ),
    (
        "newest 100 with status >= 500",
        (
            f"select id, event_message, r.status_code from edge_logs {_UNNEST} cross join unnest(m.response) as r"
            " where r.status_code >= 500 order by timestamp desc limit 100"
        ),
        (
            "SELECT id, event_message, toInt32OrZero(log_attributes['response.status_code']) AS status"
            f" {_EDGE_LOGS} AND status >= 500 ORDER BY timestamp DESC LIMIT 100"
        ),
    ),
    (
        "top countries",
        (
            f"select c.country, count(*) as n from edge_logs {_UNNEST} cross join unnest(m.request) as r"
            " cross join unnest(r.cf) as c group by c.country order by n desc, c.country limit 10"
        ),
        (
            f"SELECT log_attributes['request.cf.country'] AS country, count() AS n {_EDGE_LOGS} GROUP BY country"
            " ORDER BY n DESC, country LIMIT 10"
        ),
    ),
    (
        "counts by hour",
        "select timestamp_trunc(timestamp, hour) as t, count(*) as n from edge_logs group by t order by t",
        f"SELECT toStartOfHour(timestamp) AS t, count() AS n {_EDGE_LOGS} GROUP BY t ORDER BY t",
    ),
    (
        "failures by hour",
        (
            "select timestamp_trunc(timestamp, hour) as t, countif(r.status_code >= 500) as n from edge_logs"
            f" {_UNNEST} cross join unnest(m.response) as r group by t order by t"
        ),
        (
            "SELECT toStartOfHour(timestamp) AS t,"
            " countIf(toInt32OrZero(log_attributes['response.status_code']) >= 500) AS n"
            f" {_EDGE_LOGS} GROUP BY t ORDER BY t"
        ),
    ),
    (
        "a text of every event",
        f"select count(*) as n from edge_logs {_UNNEST} cross join unnest(m.request) as r where r.path like '%/rest%'",
        f"SELECT count() AS n {_EDGE_LOGS} AND log_attributes['request.path'] LIKE '%/rest%'",
    ),
    (
        "a regular expression on messages",
        "select count(*) as n from edge_logs where regexp_contains(event_message, r'POST.*5\\d\\d')",
        f"SELECT count() AS n {_EDGE_LOGS} AND match(event_message, 'POST.*5\\\\d\\\\d')",
    ),
    (
        "newest 100 whole events",
        "select id, timestamp, event_message, metadata from edge_logs order by timestamp desc limit 100",
        f"SELECT id, timestamp, event_message, log_attributes {_EDGE_LOGS} ORDER BY timestamp DESC LIMIT 100",
    ),
)
_ENDPOINTS = ("logs.all", "logs.all.otel")


def main() -> int:
    with loaded_app() as app:
        print(f"events until {END}\n{'':<34}  BigQuery ms  ClickHouse ms  times")
        for name, *queries in QUESTIONS:
            calls = [
                partial(_send_query, app, endpoint, sql) for endpoint, sql in zip(_ENDPOINTS, queries, strict=True)
            ]
            bigquery, clickhouse = min_processor_ms(calls)
            print(f"{name:<34} {bigquery:12.2f} {clickhouse:14.2f} {clickhouse / bigquery:6.2f}", flush=True)
    return 0


def _send_query(app: InProcessApp, endpoint: str, sql: str) -> None:
    query = urlencode({"project": _QUERIED_PROJECT, "sql": sql})
    status, _, body = app.send("GET", f"/api/endpoints/query/{endpoint}?{query}", b"", {"cache-control": "no-cache"})
    if status != 200:
        raise RuntimeError(body.decode())


if __name__ == "__main__":
    sys.exit(main())
