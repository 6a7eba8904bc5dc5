"""Random requests to every route cause no internal error and do not hang, and the service still works afterwards.

`make torture` sends many more requests. REQUEST_SEED selects other requests.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.web.asgi import Message, Scope
from cordwood.web.routes import PATTERN_ROUTES, ROUTES_BY_PATH
from tests.attack.random_requests import RawRequest, random_request
from tests.attack.store_comparison import Store
from tests.attack.test_pinned_queries import make_settings
from tests.chdb_databases import fresh_database

IS_FULL: Final = os.environ.get("TORTURE") == "full"
REQUEST_SEED: Final = os.environ.get("REQUEST_SEED", "1")
REQUEST_COUNTS: Final = {"duckdb": 300_000, "clickhouse": 100_000} if IS_FULL else {"duckdb": 3000, "clickhouse": 800}
MAX_SECONDS: Final = 60
# Statuses of server errors that are permitted: not implemented, busy, and disk full.
PERMITTED_ERROR_STATUSES: Final = frozenset({501, 503, 507})


@pytest.fixture(params=REQUEST_COUNTS)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(engine: str, tmp_path: Path) -> Iterator[Store]:
    address = fresh_database() if engine == "clickhouse" else engine
    with open_in_process_app(make_settings(tmp_path / "data", engine=address)) as app:
        yield Store(app, engine, "default")


@pytest.mark.torture
def test_no_request_causes_an_internal_error(store: Store) -> None:
    store.take("cloudflare.logs.prod", [{"id": "own", "event_message": "own", "project": "default"}])
    keys = (store.app.private_key_secret, store.private, store.pinned, store.pinned_private, "wrong")
    statuses: Counter[int] = Counter()
    for number in range(REQUEST_COUNTS[store.engine]):
        seed = f"{REQUEST_SEED}:{number}"
        requested = random_request(seed, keys)
        status, body = send(store.app, requested)
        statuses[status] += 1
        assert status < 500 or status in PERMITTED_ERROR_STATUSES, (seed, requested, body[:1000])
    assert statuses[200] > REQUEST_COUNTS[store.engine] / 20
    assert len(statuses) > 8
    sql = "select event_message from edge_logs where id = 'own'"
    _, _, last_answer = store.ask(store.app.private_key_secret, project="default", sql=sql)
    assert json.loads(last_answer)["result"] == [{"event_message": "own"}]


def send(app: InProcessApp, requested: RawRequest) -> tuple[int, bytes]:
    return app.runner.run(asyncio.wait_for(_exchange(app, requested), MAX_SECONDS))


async def _exchange(app: InProcessApp, requested: RawRequest) -> tuple[int, bytes]:
    """Pass a request to the application; return the status and the whole body of the response."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": requested.method,
        "path": requested.path.decode("latin-1"),
        "raw_path": requested.path,
        "query_string": requested.query,
        "headers": list(requested.headers),
        "client": ("203.0.113.1", 1),
    }
    unread, sent = list(requested.chunks), list[Message]()
    has_begun, is_followed = asyncio.Event(), b"/tail/" in requested.path

    async def receive() -> Message:
        if not unread:
            # The answer to a followed query ends only when the client disconnects.
            await (has_begun if is_followed else asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": unread.pop(0), "more_body": bool(unread)}

    async def take(message: Message) -> None:
        sent.append(message)
        has_begun.set()

    await app.app(scope, receive, take)
    for name, value in sent[0]["headers"]:
        assert not {*b"\r\n\x00"} & {*name, *value}, (name, value)
    assert is_followed or sent[-1].get("more_body", False) is False
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_every_route_is_requested() -> None:
    requested = {
        random_request(f"{REQUEST_SEED}:{number}", ("key",)).path for number in range(REQUEST_COUNTS["duckdb"])
    }
    assert {path for path in ROUTES_BY_PATH if path not in requested} == set()
    assert [pattern.pattern for pattern, _ in PATTERN_ROUTES if not any(map(pattern.fullmatch, requested))] == []
