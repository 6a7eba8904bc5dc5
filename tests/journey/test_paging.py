"""Pages of an answer, with `Cordwood-Next` and `cursor=`, on both engines, while events arrive."""

import base64
import csv
import io
import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import h11
import httpx
import pytest

from tests.chdb_databases import fresh_database
from tests.clickhouse_server import serve_clickhouse
from tests.journey.conftest import PRIVATE, Service, Start, create_key, start_service

EDGE_STREAM, AUTH_STREAM = "cloudflare.logs.prod", "gotrue.logs.prod"
EVENT_COUNT, PAGE_SIZE = 300, 70
UNNEST_ITEMS = "cross join unnest(metadata) as m cross join unnest(m.items) as item"
ENDPOINTS = {
    "saved": """/*
name = "saved"
max_rows = 90
[parameters.project]
required = true
[parameters.rows]
type = "INT64"
*/
with logs as (select t.id, t.timestamp, t.event_message, t.metadata from `cloudflare.logs.prod` as t where t.project = @project)
select id, event_message from logs order by event_message limit 200
""",
    "parameter_limit": """/*
name = "parameter_limit"
max_rows = 90
[parameters.project]
required = true
[parameters.rows]
type = "INT64"
required = true
*/
select t.id from `cloudflare.logs.prod` as t where t.project = @project order by t.id limit @rows
""",
    "parameter_offset": """/*
name = "parameter_offset"
max_rows = 90
[parameters.project]
required = true
[parameters.rows]
type = "INT64"
[parameters.skipped]
type = "INT64"
default = "0"
*/
select t.event_message, count(*) as n from `cloudflare.logs.prod` as t where t.project = @project group by 1, t.id limit @rows offset @skipped
""",
    "sandboxed": """/*
name = "sandboxed"
max_rows = 90
sandbox = true
[parameters.project]
required = true
*/
with edge_logs as (select t.id, t.timestamp, t.event_message, t.metadata from `cloudflare.logs.prod` as t where t.project = @project),
auth_logs as (select t.id, t.timestamp, t.event_message, t.metadata from `gotrue.logs.prod` as t where t.project = @project)
select id from edge_logs
""",
    "streamed": """/*
name = "streamed"
max_rows = 10000
[parameters.project]
required = true
*/
select t.id, n, t.event_message from `cloudflare.logs.prod` as t cross join unnest(generate_array(1, 60)) as n where t.project = @project
""",
    "recent": """/*
name = "recent"
max_rows = 90
[parameters.project]
required = true
*/
select t.id from `cloudflare.logs.prod` as t where t.project = @project and t.timestamp > timestamp_sub(current_timestamp(), interval 1 hour)
""",
    "groups": """/*
name = "groups"
max_rows = 90
[parameters.project]
required = true
*/
select t.id, count(*) as n from `cloudflare.logs.prod` as t where t.project = @project group by t.id
""",
    "kept": """/*
name = "kept"
max_rows = 90
cache = "900s"
[parameters.project]
required = true
*/
select t.id from `cloudflare.logs.prod` as t where t.project = @project order by t.timestamp desc
""",
    "shared_ids": """/*
name = "shared_ids"
max_rows = 90
sandbox = true
*/
with logs as (select t.id, t.timestamp, t.event_message, t.project, t.metadata from `cloudflare.logs.prod` as t where t.id like 'shared-%')
select id from logs
""",
    "own_cursor": """/*
name = "own_cursor"
max_rows = 90
[parameters.project]
required = true
[parameters.cursor]
*/
select t.id, @cursor as cursor from `cloudflare.logs.prod` as t where t.project = @project order by t.timestamp desc
""",
}


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("paging")
    (folder / "endpoints").mkdir()
    for name, text in ENDPOINTS.items():
        (folder / "endpoints" / f"{name}.sql").write_text(text)
    arguments = folder / "data", "--endpoints", str(folder / "endpoints")
    if request.param == "duckdb":
        running = start_service(*arguments)
        yield running
        running.stop()
        return
    with serve_clickhouse(fresh_database()) as server:
        running = start_service(*arguments, env={"CORDWOOD_ENGINE": server.address()})
        yield running
        running.stop()


def events(project: str, count: int = EVENT_COUNT, first: int = 0) -> list[dict[str, Any]]:
    """Return events with few distinct times, as senders with whole seconds have, and with arrays of one to three
    elements.
    """
    rng = random.Random(first)
    return [
        {
            "id": f"{project}-{rng.randrange(10**9):09}-{number}",
            "project": project,
            "timestamp": f"2026-01-01T00:00:{rng.randrange(20):02}Z",
            "event_message": f"message {rng.randrange(60)} of {rng.choice(['ada@example.com', 'bob@example.com'])}",
            "metadata": {
                "status": rng.randrange(200, 230),
                "items": [{"n": n} for n in range(rng.randrange(1, 4))],
            },
        }
        for number in range(first, first + count)
    ]


def send(service: Service, project: str, count: int = EVENT_COUNT, first: int = 0) -> None:
    for stream in (EDGE_STREAM, AUTH_STREAM):
        answer = service.send(stream, events(project, count, first))
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == count, answer.text


Between = Callable[[int], None]


def fetch_pages(
    service: Service,
    endpoint: str,
    parameters: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
    between: Between = lambda _: None,
) -> list[list[dict[str, Any]]]:
    """Follow the cursors and return the rows of each page. `between` is called after each page."""
    fetched_pages = []
    cursor = None
    while True:
        sent = {**parameters, **({"cursor": cursor} if cursor else {})}
        answer = service.client.get(f"/api/endpoints/query/{endpoint}", params=sent, headers=headers)
        assert answer.status_code == 200, answer.text
        fetched_pages.append(answer.json()["result"])
        cursor = answer.headers.get("cordwood-next")
        assert ("cordwood-truncated" in answer.headers) == (cursor is not None)
        if cursor is None:
            return fetched_pages
        between(len(fetched_pages))


def all_rows(result_rows: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    return [json.dumps(row, sort_keys=True) for page in result_rows for row in page]


def query_all_rows(service: Service, project: str, sql: str, headers: Mapping[str, str] | None = None) -> list[str]:
    """Return all rows of the query from a single request."""
    answer = service.client.get(
        "/api/endpoints/query/logs.all", params={"project": project, "sql": sql}, headers=headers
    )
    assert "cordwood-truncated" not in answer.headers
    return all_rows([answer.json()["result"]])


QUERIES_BY_NAME = {
    "newest first": ("select id, timestamp from edge_logs order by timestamp desc", EVENT_COUNT),
    "oldest first": ("select id, timestamp from edge_logs order by timestamp", EVENT_COUNT),
    "in no order": ("select id from edge_logs", EVENT_COUNT),
    "time that is not answered": ("select event_message from edge_logs order by timestamp desc", EVENT_COUNT),
    "a DATETIME": ("select cast(timestamp as datetime) as at, id from edge_logs order by at desc", EVENT_COUNT),
    "several keys": ("select id, timestamp from edge_logs order by timestamp desc, event_message", EVENT_COUNT),
    "another order": ("select id, event_message from edge_logs order by event_message", EVENT_COUNT),
    "elements": (f"select id, item.n from edge_logs {UNNEST_ITEMS} order by timestamp desc", None),
    "elements without their ids": (f"select item.n from edge_logs {UNNEST_ITEMS} order by timestamp", None),
    "a sub-query": (
        "select m from (select event_message as m, timestamp from edge_logs) order by timestamp",
        EVENT_COUNT,
    ),
    "groups": ("select event_message, count(*) as n from edge_logs group by 1", None),
    "distinct": ("select distinct id from edge_logs", EVENT_COUNT),
    "a union": ("select id from edge_logs union all select id from auth_logs", 2 * EVENT_COUNT),
    "a union by time": (
        "select id from (select id, timestamp from edge_logs union all select id, timestamp from auth_logs) order by timestamp",
        2 * EVENT_COUNT,
    ),
    "an outer join": (
        "select e.id, a.id as other from edge_logs as e left join auth_logs as a on a.id = e.id order by e.timestamp desc",
        EVENT_COUNT,
    ),
    "a limit": ("select id, timestamp from edge_logs order by timestamp desc limit 200", 200),
    "a limit and an offset": ("select id from edge_logs order by timestamp limit 200 offset 30", 200),
    "a limit near the size of a page": ("select id, timestamp from edge_logs order by timestamp desc limit 95", 95),
    "an offset": ("select id from edge_logs order by timestamp limit 100000 offset 90", EVENT_COUNT - 90),
}


# Queries whose pages contain an event that arrives later, if it sorts after the rows already returned.
QUERIES_PAGED_BY_TIME = {
    "newest first",
    "oldest first",
    "in no order",
    "time that is not answered",
    "a DATETIME",
    "elements",
    "elements without their ids",
    "a union by time",
    "an outer join",
    "a sub-query",
}


@pytest.mark.parametrize("name", QUERIES_BY_NAME)
def test_pages_contain_each_row_once_while_events_arrive(service: Service, name: str) -> None:
    """Send events with the same times as the stored ones after each page."""
    sql, expected = QUERIES_BY_NAME[name]
    project = f"arriving-{list(QUERIES_BY_NAME).index(name)}"
    send(service, project)
    before = Counter(query_all_rows(service, project, sql))

    def send_more(number: int) -> None:
        send(service, project, 10, 10_000 * number)

    fetched_pages = fetch_pages(
        service, "logs.all", {"project": project, "sql": sql, "page_size": str(PAGE_SIZE)}, between=send_more
    )
    shortest = PAGE_SIZE - 3 if "elements" in name else PAGE_SIZE
    assert all(shortest <= len(page) <= PAGE_SIZE for page in fetched_pages[:-1])
    rows = Counter(all_rows(fetched_pages))
    if name in QUERIES_PAGED_BY_TIME:
        assert before <= rows
        assert rows <= Counter(query_all_rows(service, project, sql))
    elif "limit" in name or "offset" in name:
        assert set(rows.values()) == {1}
        assert rows.total() == expected
    else:
        assert rows == before
    assert expected is None or before.total() == expected


@pytest.mark.parametrize("is_redacted", [False, True])
@pytest.mark.parametrize("order", ["", "order by timestamp", "order by event_message"])
def test_pages_contain_the_events_of_all_projects_that_have_the_same_id_and_time(
    service: Service, order: str, *, is_redacted: bool
) -> None:
    """Send the same ids, times and messages in several projects, in another order of projects for each id."""
    if not service.client.get("/api/endpoints/query/shared_ids").json()["result"]:
        for number in range(20):
            shared = {"id": f"shared-{number}", "timestamp": "2026-01-01T00:00:00Z", "event_message": "same"}
            projects = random.Random(number).sample(range(10), 10)
            sent = [{**shared, "project": f"p{project}"} for project in projects]
            assert service.send(EDGE_STREAM, sent).json()["accepted"] == 10
    headers = {"LF-ENDPOINT-REDACT-PII": "true"} if is_redacted else None
    for page_size in (1, 7):
        sql = f"select id, project from logs {order} limit {30 * page_size}"
        rows = all_rows(fetch_pages(service, "shared_ids", {"sql": sql, "page_size": str(page_size)}, headers))
        assert len(set(rows)) == len(rows) == min(30 * page_size, 200)


@pytest.mark.parametrize("name", ["newest first", "another order", "elements", "groups"])
def test_redacted_pages_contain_each_row_once(service: Service, name: str) -> None:
    project, redacted = f"redacted-{name.split(maxsplit=1)[0]}", {"LF-ENDPOINT-REDACT-PII": "true"}
    send(service, project)
    sql, _ = QUERIES_BY_NAME[name]
    parameters = {"project": project, "sql": sql}
    fetched_pages = fetch_pages(service, "logs.all", {**parameters, "page_size": str(PAGE_SIZE)}, redacted)
    assert sorted(all_rows(fetched_pages)) == sorted(query_all_rows(service, project, sql, redacted))
    assert "example.com" not in str(fetched_pages)


def test_lql_and_clickhouses_dialect_are_paged(service: Service) -> None:
    send(service, "languages")
    lql = fetch_pages(service, "logs.all", {"project": "languages", "lql": "f:edge_logs s:id", "page_size": "90"})
    assert len(set(all_rows(lql))) == len(all_rows(lql)) == EVENT_COUNT
    for order in ("", " ORDER BY timestamp DESC", " ORDER BY id"):
        sql = f"SELECT id, source FROM logs{order}"
        dialect = fetch_pages(service, "logs.all.otel", {"project": "languages", "sql": sql, "page_size": "90"})
        assert len(set(all_rows(dialect))) == len(all_rows(dialect)) == 2 * EVENT_COUNT


def test_a_saved_query_is_paged_within_its_own_limit(service: Service) -> None:
    send(service, "saved")
    fetched_pages = fetch_pages(service, "saved", {"project": "saved"})
    assert [len(page) for page in fetched_pages] == [90, 90, 20]
    assert len(set(all_rows(fetched_pages))) == 200
    messages = [row["event_message"] for page in fetched_pages for row in page]
    assert messages == sorted(messages)


def test_a_page_is_in_the_order_of_the_query(service: Service) -> None:
    send(service, "ordered")
    sql = "select id, timestamp from edge_logs order by timestamp desc"
    fetched_pages = fetch_pages(service, "logs.all", {"project": "ordered", "sql": sql, "page_size": "90"})
    times = [row["timestamp"] for page in fetched_pages for row in page]
    assert times == sorted(times, reverse=True)


def test_a_cached_first_page_has_a_cursor(service: Service) -> None:
    send(service, "kept")
    first, cached_page = (service.query("kept", project="kept") for _ in range(2))
    assert "hit" in cached_page.headers["cache-status"]
    assert first.headers["cordwood-next"] == cached_page.headers["cordwood-next"]
    fetched_pages = fetch_pages(service, "kept", {"project": "kept"})
    assert len(set(all_rows(fetched_pages))) == len(all_rows(fetched_pages)) == EVENT_COUNT


@pytest.mark.parametrize("name", QUERIES_BY_NAME)
def test_a_truncated_answer_has_a_next_page_without_a_requested_page_size(service: Service, name: str) -> None:
    sql, expected = QUERIES_BY_NAME[name]
    project = f"plain-{list(QUERIES_BY_NAME).index(name)}"
    send(service, project)
    fetched_pages = fetch_pages(service, "sandboxed", {"project": project, "sql": sql})
    assert len(fetched_pages) > 1 or len(fetched_pages[0]) <= 90
    rows = Counter(all_rows(fetched_pages))
    assert expected is None or rows.total() == expected
    if "limit" not in name and "offset" not in name:
        assert rows == Counter(query_all_rows(service, project, sql))
    else:
        assert set(rows.values()) == {1}


def test_a_truncated_answer_of_groups_has_a_next_page(service: Service) -> None:
    send(service, "grouped")
    truncated = service.query("groups", project="grouped")
    assert truncated.headers["cordwood-truncated"] == "max_rows=90"
    assert "cordwood-notice" not in truncated.headers
    fetched_pages = fetch_pages(service, "groups", {"project": "grouped"})
    assert len(set(all_rows(fetched_pages))) == len(all_rows(fetched_pages)) == EVENT_COUNT
    send(service, "few", 50)
    assert "cordwood-next" not in service.query("groups", project="few").headers


@pytest.mark.parametrize(
    ("rows", "skipped", "expected"),
    [("200", "0", 200), ("95", "7", 95), ("1000", "30", EVENT_COUNT - 30), ("90", "5", 90)],
)
def test_a_limit_and_an_offset_that_are_parameters_count_for_all_pages(
    service: Service, rows: str, skipped: str, expected: int
) -> None:
    project = f"limited-{rows}"
    send(service, project)
    fetched_pages = fetch_pages(service, "parameter_limit", {"project": project, "rows": rows})
    assert len(set(all_rows(fetched_pages))) == len(all_rows(fetched_pages)) == min(int(rows), EVENT_COUNT)
    grouped = fetch_pages(service, "parameter_offset", {"project": project, "rows": rows, "skipped": skipped})
    assert len(all_rows(grouped)) == expected
    # An answer that fits into one page need not be sorted.
    assert len(grouped) == 1 or all_rows(grouped) == sorted(all_rows(grouped))


def read_streamed(connection: socket.socket, target: str, key: str) -> tuple[dict[str, str], str, dict[str, str]]:
    """Return the headers, the body and the trailers of an answer, read with h11, because httpx drops trailers."""
    reader = h11.Connection(h11.CLIENT)
    head = [("Host", "127.0.0.1"), ("X-API-KEY", key)]
    connection.sendall(reader.send(h11.Request(method="GET", target=target, headers=head)) or b"")
    headers: dict[str, str] = {}
    body = bytearray()
    while True:
        event = reader.next_event()
        if event is h11.NEED_DATA:
            reader.receive_data(connection.recv(65536))
        elif isinstance(event, h11.Response):
            headers = texts_of(event.headers)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return headers, body.decode(), texts_of(event.headers)
        else:
            raise AssertionError(event)


def texts_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in headers}


def test_a_streamed_answer_has_its_cursor_and_its_rows_in_trailers(service: Service) -> None:
    """Read the cursor and the number of rows from trailers, because both are known only after the last row.

    The connection must be usable for the next request.
    """
    send(service, "trailers")
    target = "/api/endpoints/query/streamed?project=trailers&format=ndjson"
    with socket.create_connection(
        (service.client.base_url.host, service.client.base_url.port), timeout=30
    ) as connection:
        for _ in range(2):
            headers, body, trailers = read_streamed(connection, target, PRIVATE)
            assert set(headers["trailer"].lower().split(", ")) >= set(trailers)
            lines = body.splitlines()
            assert int(trailers["cordwood-rows"]) == len(lines) > 5_000
            assert trailers["cordwood-truncated"] == "max_rows=10000"
    # A request with a page size is not answered as a stream.
    next_page = service.client.get(f"{target}&cursor={trailers['cordwood-next']}")
    assert next_page.headers["cordwood-rows"] == str(60 * EVENT_COUNT - len(lines))
    lines += next_page.text.splitlines()
    assert len(set(lines)) == len(lines) == 60 * EVENT_COUNT


def test_an_endpoint_may_have_a_parameter_named_cursor(service: Service) -> None:
    send(service, "own")
    rows = service.rows("own_cursor", project="own", cursor="mine")
    assert {row["cursor"] for row in rows} == {"mine"}


def test_an_answer_within_its_limits_has_no_cursor(service: Service) -> None:
    send(service, "small", 50)
    for sql in ("select id from edge_logs", "select id from edge_logs order by timestamp desc limit 20"):
        answer = service.query("logs.all", project="small", sql=sql)
        assert "cordwood-next" not in answer.headers
    exact = service.query("logs.all", project="small", sql="select id from edge_logs", page_size="50")
    assert len(exact.json()["result"]) == 50
    assert "cordwood-next" not in exact.headers


@pytest.mark.parametrize(("name", "media"), [("csv", "text/csv"), ("ndjson", "application/x-ndjson")])
def test_streamed_formats_have_cursors_if_page_size_is_set(service: Service, name: str, media: str) -> None:
    send(service, f"format-{name}")
    parameters = {"project": f"format-{name}", "sql": "select id from edge_logs", "page_size": "200", "format": name}
    first = service.query("logs.all", **parameters)
    assert first.headers["content-type"].startswith(media)
    second = service.query("logs.all", **parameters, cursor=first.headers["cordwood-next"])
    assert "cordwood-next" not in second.headers
    read = list(csv.DictReader(io.StringIO(first.text + second.text))) if name == "csv" else None
    rows = read if read is not None else [json.loads(line) for line in (first.text + second.text).splitlines()]
    assert len({row["id"] for row in rows} - {"id"}) == EVENT_COUNT


def refusal_message(answer: httpx.Response) -> str:
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "urn:cordwood:error:request.bad-parameter"
    detail: str = answer.json()["detail"]
    return detail


def test_a_cursor_belongs_to_its_request(service: Service) -> None:
    send(service, "bound")
    send(service, "other")
    sql = "select id from edge_logs"
    cursor = service.query("logs.all", project="bound", sql=sql, page_size="90").headers["cordwood-next"]
    for changed in (
        {"project": "other"},
        {"sql": "select id from auth_logs"},
        {"iso_timestamp_start": "2025-01-01T00:00:00Z"},
    ):
        sent = {"project": "bound", "sql": sql, "cursor": cursor, **changed}
        assert "belongs to another query" in refusal_message(service.query("logs.all", **sent))
    redacted = {"LF-ENDPOINT-REDACT-PII": "true"}
    sent = {"project": "bound", "sql": sql, "cursor": cursor}
    assert "belongs to another query" in refusal_message(
        service.client.get("/api/endpoints/query/logs.all", params=sent, headers=redacted)
    )
    assert "belongs to another query" in refusal_message(service.query("saved", project="bound", cursor=cursor))


def test_a_cursor_reveals_nothing_of_the_row(service: Service) -> None:
    """Check that a cursor is encrypted, because an endpoint may omit ids and times from its rows."""
    send(service, "hidden")
    parameters = {
        "project": "hidden",
        "sql": "select 1 as one from edge_logs order by timestamp desc",
        "page_size": "90",
    }
    cursor = service.query("logs.all", **parameters).headers["cordwood-next"]
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert len(data) > 40
    assert b"hidden" not in data


def test_a_forged_or_changed_cursor_is_refused(service: Service) -> None:
    """Check that a cursor is authenticated, because it contains the time of the query.

    With a forged cursor, a caller could read older events.
    """
    send(service, "forged")
    sql = "select id from edge_logs"
    cursor = service.query("logs.all", project="forged", sql=sql, page_size="90").headers["cordwood-next"]
    rng = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for place in range(len(cursor)):
        other = rng.choice([letter for letter in letters if letter != cursor[place]])
        answer = service.query(
            "logs.all", project="forged", sql=sql, cursor=cursor[:place] + other + cursor[place + 1 :]
        )
        # A change of the last base64 letter may affect only unused bits.
        assert answer.status_code == 400 or place == len(cursor) - 1
    for text in ("x", "=", "\u00e9", "A" * 5000, "kw", "\x00", cursor[:-2], cursor + cursor):
        assert "cursor" in refusal_message(service.query("logs.all", project="forged", sql=sql, cursor=text))


@pytest.mark.parametrize("size", ["0", "-1", "1001", "9" * 30, "ten", "1e2", "\u0661"])
def test_an_invalid_page_size_is_refused(service: Service, size: str) -> None:
    answer = service.query("logs.all", project="sizes", sql="select id from edge_logs", page_size=size)
    assert "page_size" in refusal_message(answer)
    assert "1 to 1000" in answer.json()["error"]["hint"]


def test_a_sandbox_key_follows_cursors_within_its_project(service: Service) -> None:
    send(service, "public")
    send(service, "private")
    headers = {"X-API-KEY": create_key(service, "query", pins={"project": "public"})}
    fetched_pages = fetch_pages(service, "logs.all", {"sql": "select id from edge_logs", "page_size": "90"}, headers)
    assert {row["id"].split("-")[0] for page in fetched_pages for row in page} == {"public"}
    assert len(all_rows(fetched_pages)) == EVENT_COUNT


def test_cursors_are_valid_after_a_restart(start: Start) -> None:
    service = start()
    send(service, "restarted")
    parameters = {"project": "restarted", "sql": "select id from edge_logs", "page_size": "200"}
    first = service.query("logs.all", **parameters)
    service.kill()
    service = start()
    second = service.query("logs.all", **parameters, cursor=first.headers["cordwood-next"])
    result_rows = [row["id"] for answer in (first, second) for row in answer.json()["result"]]
    assert len(set(result_rows)) == len(result_rows) == EVENT_COUNT
