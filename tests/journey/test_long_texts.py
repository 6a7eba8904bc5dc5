"""Thousands of distinct long queries, names and keys take no more memory than the limits of the caches."""

import time
from collections.abc import Callable
from typing import Final

import httpx
import pytest

from bench.process_family import MemoryProbe, family_bytes
from tests.journey.conftest import PRIVATE, Start
from tests.machine_speed import scaled

QUERY_PATH: Final = "/api/endpoints/query/logs.all"
TEXT_BYTES: Final = 250_000
HEAD_BYTES: Final = 12_000
# The maximum growth covers three caches of 1/32 of the ceiling, caches of fixed size, and memory that allocators keep.
MAX_GROWTH: Final = 120 * 10**6


def distinct_text(number: int, size: int = TEXT_BYTES) -> str:
    return f"{number:09}".ljust(size, "x")


def send_sql(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(QUERY_PATH, json={"project": "p", "sql": f"select '{distinct_text(number)}' as x"})


def send_lql(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(
        QUERY_PATH, json={"project": "p", "lql": f'f:edge_logs m.request.path:"{distinct_text(number, 65_000)}"'}
    )


def send_parameter(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(QUERY_PATH, json={"project": distinct_text(number), "sql": "select 1 as x"})


def send_column(client: httpx.Client, number: int) -> httpx.Response:
    return client.post(
        QUERY_PATH, json={"project": "p", "sql": f"select `{distinct_text(number)}` as x from edge_logs"}
    )


def send_query_with_regex(client: httpx.Client, number: int) -> httpx.Response:
    pattern = distinct_text(number, 20_000)
    query = f"select countif(regexp_contains(event_message, '{pattern}')) as x from edge_logs"
    return client.post(QUERY_PATH, json={"project": "p", "sql": query})


def send_ad_hoc_query(client: httpx.Client, number: int) -> httpx.Response:
    return client.post("/api/query", json={"sql": f"select '{distinct_text(number)}' as x"})


def present_key(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(QUERY_PATH, headers={"X-API-KEY": distinct_text(number, HEAD_BYTES)})


def request_endpoint(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(f"/api/endpoints/query/{distinct_text(number, HEAD_BYTES)}")


def request_address(client: httpx.Client, number: int) -> httpx.Response:
    return client.get(QUERY_PATH, params={"project": distinct_text(number, 1_800), "sql": "select 1 as x"})


REQUEST_COUNTS: Final[dict[Callable[[httpx.Client, int], httpx.Response], tuple[int, int]]] = {
    send_sql: (300, 200),
    send_lql: (60, 200),
    send_parameter: (100, 200),
    send_column: (60, 400),
    send_query_with_regex: (60, 200),
    send_ad_hoc_query: (60, 200),
    present_key: (200, 401),
    request_endpoint: (200, 404),
    request_address: (300, 200),
}


@pytest.mark.torture
def test_distinct_long_texts_take_bounded_memory_and_others_are_served(start: Start) -> None:
    service = start("--memory", "512MB")
    assert send_sql(service.client, 0).status_code == 200
    base = family_bytes(service.process.pid)
    probe = MemoryProbe(service.process.pid)
    probe.start()
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": PRIVATE}, timeout=60) as other:
        for send, (count, status) in REQUEST_COUNTS.items():
            for number in range(count):
                answer = send(service.client, number)
                assert answer.status_code == status, (send.__name__, answer.text[:300])
            began = time.monotonic()
            assert other.get(QUERY_PATH, params={"project": send.__name__}).status_code == 200
            assert time.monotonic() - began < scaled(2)
    assert family_bytes(service.process.pid) < base + MAX_GROWTH
    probe.stopped.set()
    assert probe.peak_bytes < base + 1.25 * 512 * 10**6
