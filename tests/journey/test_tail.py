"""Followed queries: each row is sent once, as its event is stored. Followers and their memory are limited."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.process_family import family_bytes, kill
from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start
from tests.journey.followed import Follower, Message
from tests.journey.test_engine_process import engine_pid
from tests.waiting import until

EDGE_STREAM, POSTGRES_STREAM = "cloudflare.logs.prod", "postgres.logs"
_projects = itertools.count()


@pytest.fixture
def project() -> str:
    return f"tail{next(_projects)}"


def send(service: Service, project: str, *texts: str, stream: str = POSTGRES_STREAM) -> None:
    events = [{"id": f"{project} {text[:12]}", "project": project, "event_message": text} for text in texts]
    answer = service.send(stream, events)
    assert answer.json()["accepted"] == len(texts), answer.text


def create_private_key(service: Service, **terms: object) -> tuple[str, str]:
    """Create a private key, and return its id and its secret."""
    answer = service.client.post("/api/access-tokens", json={"description": "tail", **terms})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"]), str(answer.json()["token"])


def test_each_follower_gets_the_rows_of_its_query(service: Service, project: str) -> None:
    all_events = Follower(service, project=project, lql="f:postgres_logs").start_and_wait()
    errors = Follower(
        service, project=project, sql="select event_message from postgres_logs where event_message like 'error%'"
    )
    saved = Follower(service, project=project).start_and_wait()
    errors.start_and_wait()
    send(service, project, "fine", "error 1")
    send(service, project, "edge", stream=EDGE_STREAM)
    send(service, f"{project} other", "error of others")
    send(service, project, "error 2")
    assert errors.wait_for(2).texts == ["error 1", "error 2"]
    assert sorted(all_events.wait_for(3).texts) == ["error 1", "error 2", "fine"]
    assert saved.wait_for(1).texts == ["edge"]
    assert all_events.rows[0].keys() == {"id", "timestamp", "event_message"}
    assert all_events.headers["content-type"] == "text/event-stream"


def test_rows_are_in_the_order_in_which_events_were_sent(service: Service, project: str) -> None:
    live = Follower(service, project=project, lql="f:postgres_logs").start_and_wait()
    expected = []
    for batch in range(3):
        times = [f"2026-01-0{9 - batch}T00:00:{second:02}Z" for second in (7, 3, 5, 5, 5, 7)]
        events = [
            {"project": project, "timestamp": time, "event_message": f"{n} {time}"} for n, time in enumerate(times)
        ]
        service.send(POSTGRES_STREAM, events)
        expected += [event["event_message"] for event in events]
    assert live.wait_for(18).texts == expected
    stored = Follower(service, project=project, lql="f:postgres_logs", since="1h").start_and_wait()
    assert stored.wait_for(18).texts == expected


def test_filters_apply_to_new_fields(service: Service, project: str) -> None:
    follower = Follower(
        service, project=project, lql=f"f:postgres_logs m.{project}.deep:>=5 s:event_message"
    ).start_and_wait()
    for number in (3, 7):
        event = {"project": project, "event_message": f"{number}", "metadata": {project: {"deep": number}}}
        service.send(POSTGRES_STREAM, [event])
    assert follower.wait_for(1).texts == ["7"]


def test_an_event_with_several_elements_makes_a_row_of_each(service: Service, project: str) -> None:
    sql = "select item from postgres_logs cross join unnest(metadata) m cross join unnest(m.items) item"
    send(service, project, "first")
    service.send(POSTGRES_STREAM, [{"project": project, "metadata": {"items": [{"a": 1}, {"a": 2}]}}])
    follower = Follower(service, project=project, sql=sql).start_and_wait()
    service.send(POSTGRES_STREAM, [{"project": project, "metadata": {"items": [{"a": 4}, {"a": 3}]}}])
    assert [row["item"] for row in follower.wait_for(2).rows] == [[{"a": 3}], [{"a": 4}]]


def test_rows_for_followers_are_redacted(service: Service, project: str) -> None:
    _, key = create_private_key(service, scopes="query", redact=True)
    all_rows = Follower(service, key=key, project=project, lql="f:postgres_logs").start_and_wait()
    by_address = Follower(service, key=key, project=project, lql="f:postgres_logs 203.0.113.9").start_and_wait()
    plain = Follower(service, project=project, lql="f:postgres_logs 203.0.113.9").start_and_wait()
    send(service, project, "from 203.0.113.9", "last")
    assert plain.wait_for(1).texts == ["from 203.0.113.9"]
    assert sorted(all_rows.wait_for(2).texts) == ["from REDACTED", "last"]
    send(service, project, "REDACTED 203.0.113.9")
    all_rows.wait_for(3)
    assert by_address.texts == []


def test_a_pinned_key_follows_only_its_project(service: Service, project: str) -> None:
    _, key = create_private_key(service, scopes="query", pins={"project": project})
    own = Follower(service, key=key, project=project, lql="f:postgres_logs").start_and_wait()
    unnamed = Follower(service, key=key, lql="f:postgres_logs", project=project).start_and_wait()
    assert Follower(service, key=key, project="another", lql="f:postgres_logs").start_and_read_refusal()[:2] == (
        403,
        "request.forbidden",
    )
    send(service, "another", f"not for {project}")
    send(service, project, "own")
    assert own.wait_for(1).texts == unnamed.wait_for(1).texts == ["own"]


def test_a_key_that_may_not_query_follows_nothing(service: Service) -> None:
    assert Follower(service, key=PUBLIC).start_and_read_refusal()[:2] == (403, "request.forbidden")
    assert Follower(service, key="nobody's").start_and_read_refusal()[:2] == (401, "request.bad-key")


REFUSED_QUERIES = {
    "sql": [
        ("select count(*) as n from postgres_logs", "an aggregate"),
        ("select event_message from postgres_logs group by event_message", "GROUP BY"),
        ("select distinct event_message from postgres_logs", "DISTINCT"),
        ("select id from postgres_logs order by id", "ORDER BY"),
        ("select id from postgres_logs limit 5", "LIMIT"),
        ("select id from (select id from postgres_logs order by id limit 5)", "LIMIT"),
        ("select row_number() over (order by id) as n from postgres_logs", "an analytic function"),
        ("select id from postgres_logs qualify row_number() over (order by id) = 1", "QUALIFY"),
        ("select a.id from postgres_logs a join edge_logs b on a.id = b.id", "a JOIN of events"),
        ("select a.id from postgres_logs a left join edge_logs b on a.id = b.id", "a JOIN of events"),
        ("select id from postgres_logs union distinct select id from edge_logs", "UNION DISTINCT"),
        ("select id from postgres_logs except distinct select id from edge_logs", "EXCEPT"),
        ("select id from postgres_logs where id in (select id from edge_logs)", "a sub-query over events"),
        ("select (select max(id) from edge_logs) as m from postgres_logs", "a sub-query over events"),
        ("with n as (select max(id) as id from edge_logs) select id from n", "an aggregate"),
        ("select 1 as n", "a SELECT that reads no events"),
    ],
    "lql": [
        ("f:postgres_logs c:count(*)", "c: (a chart)"),
        ("f:postgres_logs c:count(*) c:group_by(t::minute)", "c: (a chart)"),
        ("f:postgres_logs order:id", "order:"),
        ("f:postgres_logs limit:5", "limit:"),
    ],
}


@pytest.mark.parametrize(
    ("language", "text", "part"), [(language, *case) for language, cases in REFUSED_QUERIES.items() for case in cases]
)
def test_a_query_over_several_events_is_refused_with_the_clause(
    service: Service, language: str, text: str, part: str
) -> None:
    status, code, message = Follower(service, **{language: text}).start_and_read_refusal()
    assert (status, code) == (422, "query.refused")
    assert f"cannot have {part}" in message


def test_a_refusal_has_a_position(service: Service) -> None:
    refused = Follower(service, sql="select id,\n  count(*) as n from postgres_logs")
    refused.start_and_read_refusal()
    assert (refused.refusal["error"]["line"], refused.refusal["error"]["column"]) == (2, 3)


def test_an_aggregate_over_an_array_of_one_event_is_followed(service: Service, project: str) -> None:
    sql = "select (select count(*) from unnest(metadata.list)) as n from postgres_logs"
    follower = Follower(service, project=project, sql=sql).start_and_wait()
    service.send(POSTGRES_STREAM, [{"project": project, "metadata": {"list": [1, 2, 3]}}])
    assert follower.wait_for(1).rows == [{"n": 3}]


@pytest.mark.parametrize("sent", ["yesterday", "1-", "-1", "1-2-3", "9" * 19 + "-1", "1-1\u0661"])
def test_an_invalid_last_event_id_is_refused(service: Service, sent: str) -> None:
    answer = service.client.get(
        "/api/endpoints/tail/logs.all", params={"project": "p"}, headers={b"Last-Event-ID": sent.encode()}
    )
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "request.bad-parameter")


def test_since_starts_with_stored_events(service: Service, project: str) -> None:
    texts = [f"stored {number}" for number in range(1500)]
    for begin in range(0, len(texts), 300):
        send(service, project, *texts[begin : begin + 300])
    follower = Follower(service, project=project, lql="f:postgres_logs", since="10m").start_and_wait()
    send(service, project, "live")
    received = follower.wait_for(1501).texts
    assert sorted(received) == sorted([*texts, "live"])
    assert received[-1] == "live"
    assert Follower(service, project=project, since="yesterday").start_and_read_refusal()[:2] == (
        400,
        "request.bad-parameter",
    )


class Sender(threading.Thread):
    """Thread that sends numbered events in batches of various sizes until it is stopped."""

    def __init__(self, service: Service, project: str) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.acknowledged = 0
        self._service = service
        self._project = project

    def run(self) -> None:
        for size in itertools.cycle((1, 7, 40, 3)):
            if self.stopped.is_set():
                return
            numbers = range(self.acknowledged, self.acknowledged + size)
            send(self._service, self._project, *(f"{number:06}" for number in numbers))
            self.acknowledged += size
            time.sleep(0.005)

    def end(self) -> list[str]:
        self.stopped.set()
        self.join()
        return [f"{number:06}" for number in range(self.acknowledged)]


def follow_in_parts(service: Service, project: str, sender: Sender, connections: int) -> Iterator[list[str]]:
    """Yield the rows of several connections. Each resumes at the last id of the previous one."""
    last_id = ""
    for number in range(connections):
        follower = Follower(service, last_id, project=project, lql="f:postgres_logs").start_and_wait()
        if number == 0:
            sender.start()
        follower.wait_for(11 + 13 * number)
        last_id = follower.disconnect()
        yield follower.texts
        time.sleep(0.05 * (number % 3))
    last_follower = Follower(service, last_id, project=project, lql="f:postgres_logs").start_and_wait()
    expected = sender.end()
    until(lambda: bool(last_follower.texts) and expected[-1] in last_follower.texts)
    yield last_follower.texts


def test_a_follower_that_reconnects_gets_each_event_once(service: Service, project: str) -> None:
    sender = Sender(service, project)
    received = [text for part in follow_in_parts(service, project, sender, 12) for text in part]
    assert sorted(received) == [f"{number:06}" for number in range(sender.acknowledged)]


def test_a_follower_survives_a_kill_of_the_engine(start: Start, project: str) -> None:
    service = start()
    follower = Follower(service, project=project, lql="f:postgres_logs").start_and_wait()
    sender = Sender(service, project)
    sender.start()
    for _ in range(3):
        follower.wait_for(len(follower.rows) + 50)
        kill(engine_pid(service))
    follower.wait_for(len(follower.rows) + 200)
    expected = sender.end()
    until(lambda: len(follower.texts) >= len(expected))
    assert sorted(follower.texts) == expected
    assert follower.is_alive()


def test_a_follower_gets_each_event_once_across_kills_of_the_service(
    start: Start, tmp_path: Path, project: str
) -> None:
    received: list[str] = []
    sent = 0
    last_id = ""
    for _ in range(3):
        service = start(data_dir=tmp_path / "data")
        follower = Follower(service, last_id, project=project, lql="f:postgres_logs").start_and_wait()
        for _ in range(4):
            send(service, project, *(f"{number:06}" for number in range(sent, sent + 25)))
            sent += 25
        follower.wait_for(60 if not received else sent - len(received) - 30)
        service.kill()
        follower.join(10)
        received += follower.texts
        last_id = follower.last_id
    service = start(data_dir=tmp_path / "data")
    next_follower = Follower(service, last_id, project=project, lql="f:postgres_logs").start_and_wait()
    send(service, project, f"{sent:06}")
    until(lambda: f"{sent:06}" in next_follower.texts)
    assert sorted([*received, *next_follower.texts]) == [f"{number:06}" for number in range(sent + 1)]


def test_a_slow_reader_gets_the_number_of_lost_rows(start: Start, project: str) -> None:
    service = start(env={"CORDWOOD_LIMITS_MEMORY": "300MB"})
    address = urlsplit(service.url)
    path = f"/api/endpoints/tail/logs.all?project={project}&lql=f:postgres_logs"
    quick = Follower(service, project=project, lql="f:postgres_logs").start_and_wait()
    with ExitStack() as stack, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(60)
        slow.connect((address.hostname, address.port))
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {PRIVATE}\r\n\r\n".encode())
        answer = stack.enter_context(closing(HTTPResponse(slow)))
        answer.begin()
        until(lambda: "cordwood_followers 2" in service.client.get("/metrics").text)
        before = family_bytes(service.process.pid)
        for batch in range(40):
            send(service, project, *(f"{batch:02} {number:02} " + "x" * 10_000 for number in range(50)))
        quick.wait_for(2000)
        assert family_bytes(service.process.pid) - before < 150e6
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        lines: list[bytes] = []
        while not lines or b'"39 49 x' not in lines[-1]:
            lines += [line for line in [answer.readline()] if line.startswith(b"data: ")]
    (lost_rows,) = [json.loads(line[6:])["lost"] for line in lines if line.startswith(b'data: {"lost"')]
    assert lost_rows > 0
    assert len(lines) - 1 + lost_rows == 2000


def test_the_followers_of_one_key_are_limited(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_KEY_FOLLOWERS": "2"})
    _, other = create_private_key(service, scopes="query")
    first = Follower(service).start_and_wait()
    Follower(service).start_and_wait()
    status, code, message = Follower(service).start_and_read_refusal()
    assert (status, code) == (429, "limit.followers")
    assert "follows 2 queries" in message
    Follower(service, key=other).start_and_wait()
    first.disconnect()
    until(lambda: "cordwood_followers 2" in service.client.get("/metrics").text)
    Follower(service).start_and_wait()


def test_the_followers_of_all_keys_are_limited(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_FOLLOWERS": "1"})
    _, other = create_private_key(service, scopes="query")
    Follower(service, key=other).start_and_wait()
    assert Follower(service).start_and_read_refusal()[:2] == (429, "limit.followers")


def test_a_follower_ends_when_its_key_is_revoked(start: Start) -> None:
    service = start()
    key_id, key = create_private_key(service, scopes="query")
    follower = Follower(service, key=key).start_and_wait()
    service.client.delete(f"/api/access-tokens/{key_id}")
    until(lambda: bool(follower.messages))
    assert [(message.event, message.data["status"]) for message in follower.messages] == [("end", "request.bad-key")]


def test_followers_get_an_end_event_when_the_service_stops(start: Start) -> None:
    service = start()
    follower = Follower(service).start_and_wait()
    assert service.stop() == 0
    follower.join(10)
    assert follower.messages == [
        Message("end", {"status": "service.draining", "message": "The service is stopping."}),
    ]


def test_a_disconnected_follower_is_removed(start: Start, project: str) -> None:
    service = start()
    followers = [
        Follower(service, project=project, lql=f"f:postgres_logs {number}").start_and_wait() for number in range(5)
    ]
    for follower in followers:
        follower.disconnect()
    until(lambda: "cordwood_followers 0" in service.client.get("/metrics").text)
