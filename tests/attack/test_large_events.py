"""After hundreds of events of one megabyte in one project, other projects' queries still work, even after a restart."""

import json
import random
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import Service, start_service

STREAM = "cloudflare.logs.prod"
EVENT_COUNT = 450
QUERY_PARAMETERS: Sequence[Mapping[str, str]] = (
    {},
    {"sql": "select count(*) as n from edge_logs"},
    {"sql": "select id, timestamp, event_message, metadata from edge_logs order by timestamp desc limit 100"},
    {
        "sql": "select m.request.path as p, count(*) as n from edge_logs cross join unnest(metadata) as m group by 1 order by 1"
    },
    {"sql": "select * from edge_logs where regexp_contains(event_message, 'good 1') order by id limit 50"},
)


def answers_by_query(service: Service) -> list[object]:
    answers = []
    for query in QUERY_PARAMETERS:
        answer = service.client.get(
            "/api/endpoints/query/logs.all", params={"project": "good", **query}, headers={"Cache-Control": "no-cache"}
        )
        assert answer.status_code == 200, (query, answer.text)
        answers.append(answer.json()["result"])
    return answers


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Iterator[Service]]:
    """Yield an iterator of services on the same folder. Each service is killed before the next one starts."""
    started: list[Service] = []

    def start_each_engine() -> Iterator[Service]:
        while True:
            started.append(start_service(tmp_path / "data", "--memory", "512MB"))
            yield started[-1]
            started[-1].kill()

    yield start_each_engine()
    started[-1].kill()


def test_large_events_of_one_project_do_not_affect_queries_of_others(services: Iterator[Service]) -> None:
    service = next(services)
    now_us = time.time_ns() // 1000
    ordinary = [
        {
            "id": f"{number:04}",
            "timestamp": now_us - number,
            "event_message": f"good {number}",
            "project": "good",
            "metadata": large_metadata(number),
        }
        for number in range(1000)
    ]
    assert service.send(STREAM, ordinary).status_code == 200
    before = answers_by_query(service)
    pins = {"scopes": "ingest", "pins": {"project": "evil"}}
    key = service.client.post("/api/access-tokens", json=pins).json()["token"]
    letters = "".join(random.Random(1).choices(string.ascii_letters, k=2_000_000))
    statuses = []
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": key}, timeout=60) as attacker:
        for number in range(EVENT_COUNT):
            body = json.dumps({"event_message": "e", "metadata": {"t": letters[number : number + 1_000_000]}})
            headers = {"content-type": "application/json"}
            answer = attacker.post("/api/logs", params={"source_name": STREAM}, content=body, headers=headers)
            statuses.append(answer.status_code)
            if answer.status_code == 429:
                assert answer.json()["type"] == "urn:cordwood:error:limit.large-events"
            if number % 150 == 149:
                assert answers_by_query(service) == before
    assert set(statuses) == {200, 429}
    assert statuses.count(200) > 8
    # The service still stores events of other projects.
    assert service.send("postgres.logs", [{"event_message": "x", "project": "good"}]).status_code == 200
    assert answers_by_query(next(services)) == before


def large_metadata(number: int) -> dict[str, object]:
    return {"project": "good", "request": {"path": f"/rest/{number % 5}"}, "response": {"status_code": 200}}
