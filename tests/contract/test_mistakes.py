"""Mistakes that callers make, each with its code, its place, its message, and what to write instead.

The table is `mistakes.jsonl`: what is sent in `sql` or `lql`, and what must be answered. Whether there are events
makes no difference.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cordwood.app.inside import Inside, opened
from cordwood.settings.settings import Settings

TABLE = [json.loads(line) for line in Path(__file__).with_name("mistakes.jsonl").read_text().splitlines()]
EVENTS = [
    {
        "event_message": f"GET | {status} | /rest/v1/todos",
        "project": "default",
        "metadata": {
            "level": "error",
            "list": ["a", "b"],
            "request": {"path": "/rest/v1/todos", "method": "GET"},
            "response": {"status_code": status, "origin_time": 120},
        },
    }
    for status in (200, 500)
]


@pytest.fixture(scope="module", params=["without events", "with events"])
def inside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    defaults = Settings()
    serve = msgspec.structs.replace(defaults.serve, data_dir=str(tmp_path_factory.mktemp("mistakes") / "data"))
    with opened(msgspec.structs.replace(defaults, serve=serve)) as inside:
        if request.param == "with events":
            assert send(inside, "/api/logs?source_name=cloudflare.logs.prod", EVENTS)[0] == 200
        yield inside


def send(inside: Inside, path: str, body: object) -> tuple[int, Any]:
    status, _, told = inside.send("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
    return status, json.loads(told)


def language(row: dict[str, str]) -> str:
    return "sql" if "sql" in row else "lql"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[language(row)][:80])
def test_a_mistake_is_told_with_its_place_and_what_to_write(inside: Inside, row: dict[str, str]) -> None:
    name = language(row)
    status, told = send(inside, "/api/endpoints/query/logs.all", {"project": "default", name: row[name]})
    assert status in (400, 422), told
    error = told["error"]
    assert {
        name: row[name],
        "code": error["status"],
        "at": f"{error.get('line')}:{error.get('column')}",
        "message": error["message"],
        "hint": error.get("hint"),
    } == row


def test_the_table_has_each_mistake_once() -> None:
    texts = [row[language(row)] for row in TABLE]
    assert len(texts) == len(set(texts)) >= 150
