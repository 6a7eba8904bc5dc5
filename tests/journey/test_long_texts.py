"""Thousands of distinct long queries, names and keys take no more memory than the limits of the caches."""

import time
from collections.abc import Callable
from typing import Final

import httpx
import pytest

from bench.process_family import MemoryProbe, family_bytes
from tests.journey.conftest import PRIVATE, Start

ANSWER: Final = "/api/endpoints/query/logs.all"
TEXT_BYTES: Final = 250_000
HEAD_BYTES: Final = 12_000
# Three caches of 1/32 of the ceiling, caches of fixed size, and freed memory that allocators keep.
MAX_GROWTH: Final = 120 * 10**6


def text(number: int, size: int = TEXT_BYTES) -> str:
    return f"{number:09}".ljust(size, "x")


def sql(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(ANSWER, json={"project": "p", "sql": f"select '{text(number)}' as x"})


def lql(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(ANSWER, json={"project": "p", "lql": f'f:edge_logs m.request.path:"{text(number, 65_000)}"'})


def parameter(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(ANSWER, json={"project": text(number), "sql": "select 1 as x"})


def column(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(ANSWER, json={"project": "p", "sql": f"select `{text(number)}` as x from edge_logs"})


def query_with_regex(client: httpx.Client, number: int) -> httpx.Response:
    pattern = text(number, 20_000)
    query = f"select countif(regexp_contains(event_message, '{pattern}')) as x from edge_logs"
    return client.post(ANSWER, json={"project": "p", "sql": query})


def ad_hoc(client: httpx.Client, number: int) -> httpx.Response:
    return client.post("/api/query", json={"sql": f"select '{text(number)}' as x"})


def key(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(ANSWER, headers={"X-API-KEY": text(number, HEAD_BYTES)})


def endpoint(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(f"/api/endpoints/query/{text(number, HEAD_BYTES)}")


def address(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(ANSWER, params={"project": text(number, 1_800), "sql": "select 1 as x"})


FLOODS: Final[dict[Callable[[httpx.Client, int], httpx.Response], tuple[int, int]]] = {
    sql: (300, 200),
    lql: (60, 200),
    parameter: (100, 200),
    column: (60, 400),
    query_with_regex: (60, 200),
    ad_hoc: (60, 200),
    key: (200, 401),
    endpoint: (200, 404),
    address: (300, 200),
}


@pytest.mark.torture
def test_distinct_long_texts_take_bounded_memory_and_others_are_served(start: Start) -> None:
    service = start("--memory", "512MB")
    assert sql(service.client, 0).status_code == 200
    base = family_bytes(service.process.pid)
    probe = MemoryProbe(service.process.pid)
    probe.start()
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": PRIVATE}, timeout=60) as other:
        for send, (count, status) in FLOODS.items():
            for number in range(count):
                answer = send(service.client, number)
                assert answer.status_code == status, (send.__name__, answer.text[:300])
            began = time.monotonic()
            assert other.get(ANSWER, params={"project": send.__name__}).status_code == 200
            assert time.monotonic() - began < 2
    assert family_bytes(service.process.pid) < base + MAX_GROWTH
    probe.stopped.set()
    assert probe.peak_bytes < base + 1.25 * 512 * 10**6
