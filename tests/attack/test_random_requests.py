"""Random requests to every address: none is answered with a failure of ours, none hangs, and the service is as before.

`make torture` sends many more; REQUEST_SEED chooses others.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cordwood.app.in_process import InProcessApp, open_service
from cordwood.web.asgi import Message, Scope
from cordwood.web.routes import EXACT, NAMED
from tests.attack.random_requests import Asked, request
from tests.attack.stores import Store
from tests.attack.test_pinned import settings
from tests.chdb_databases import fresh_database

FULL: Final = os.environ.get("TORTURE") == "full"
SEED: Final = os.environ.get("REQUEST_SEED", "1")
REQUESTS: Final = {"duckdb": 300_000, "clickhouse": 100_000} if FULL else {"duckdb": 3000, "clickhouse": 800}
SECONDS: Final = 60
# What an address that is not offered, a service that is busy and a disk that is full answer.
MEANT: Final = frozenset({501, 503, 507})


@pytest.fixture(params=REQUESTS)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(engine: str, tmp_path: Path) -> Iterator[Store]:
    address = fresh_database() if engine == "clickhouse" else engine
    with open_service(settings(tmp_path / "data", engine=address)) as inside:
        yield Store(inside, engine, "default")


@pytest.mark.torture
def test_no_request_is_answered_with_a_failure_of_ours(store: Store) -> None:
    store.take("cloudflare.logs.prod", [{"id": "own", "event_message": "own", "project": "default"}])
    keys = (store.inside.key, store.private, store.pinned, store.pinned_private, "wrong")
    statuses: Counter[int] = Counter()
    for number in range(REQUESTS[store.engine]):
        seed = f"{SEED}:{number}"
        asked = request(seed, keys)
        status, told = send(store.inside, asked)
        statuses[status] += 1
        assert status < 500 or status in MEANT, (seed, asked, told[:1000])
    assert statuses[200] > REQUESTS[store.engine] / 20
    assert len(statuses) > 8
    sql = "select event_message from edge_logs where id = 'own'"
    _, _, told_last = store.ask(store.inside.key, project="default", sql=sql)
    assert json.loads(told_last)["result"] == [{"event_message": "own"}]


def send(inside: InProcessApp, asked: Asked) -> tuple[int, bytes]:
    return inside.runner.run(asyncio.wait_for(_exchange(inside, asked), SECONDS))


async def _exchange(inside: InProcessApp, asked: Asked) -> tuple[int, bytes]:
    """The status and the body, once the whole answer has come."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": asked.method,
        "path": asked.path.decode("latin-1"),
        "raw_path": asked.path,
        "query_string": asked.query,
        "headers": list(asked.headers),
        "client": ("203.0.113.1", 1),
    }
    unread, sent = list(asked.pieces), list[Message]()

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": unread.pop(0), "more_body": bool(unread)}

    async def take(message: Message) -> None:
        sent.append(message)

    await inside.app(scope, receive, take)
    for name, value in sent[0]["headers"]:
        assert not {*b"\r\n\x00"} & {*name, *value}, (name, value)
    assert sent[-1].get("more_body", False) is False
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_every_address_is_asked() -> None:
    asked = {request(f"{SEED}:{number}", ("key",)).path for number in range(REQUESTS["duckdb"])}
    assert {path for path in EXACT if path not in asked} == set()
    assert [pattern.pattern for pattern, _ in NAMED if not any(map(pattern.fullmatch, asked))] == []
