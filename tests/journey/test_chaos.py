"""Chaos test: all kinds of attacks and ordinary clients at the same time.

Meanwhile, processes of the service are killed at random times.
"""

import gzip
import itertools
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from bench.process_family import MemoryProbe, descendants, family_bytes, kill
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits
from tests.contract.engine_asking import rows, stream
from tests.journey.conftest import Service, Start, create_key
from tests.machine_speed import scaled
from tests.waiting import until

IS_FULL = os.environ.get("TORTURE") == "full"
DURATION_SECONDS = 15 * 60.0 if IS_FULL else 15.0
SECONDS_BETWEEN_KILLS = 10.0 if IS_FULL else 5.0
MEBIBYTE = 2**20
MEMORY_CEILING_BYTES = 512 * MEBIBYTE
# The limits of the short form are wider, because other tests run at the same time, and there are too few requests for a
# 99th percentile.
MAX_SECONDS, QUANTILE, MIN_ANSWERED = (2.0, 0.99, 0.99) if IS_FULL else (5.0, 0.9, 0.95)
SENDERS, READERS, ATTACKERS = 3, 3, 6
STREAM = "postgres.logs"
MEMORY_FLAGS = ("--memory", f"{MEMORY_CEILING_BYTES // MEBIBYTE}MiB")
QUERY_LIMITS = {"CORDWOOD_LIMITS_QUERY_TIME": "5s"}
UNLIMITED = AnswerLimits(max_rows=10_000_000, timeout_seconds=300.0)

# Enough events of another project for a self join that exceeds every limit.
OTHER_PROJECT_EVENTS = [
    {"project": "poison", "event_message": f"{number:06} {'ab' * 40}", "metadata": {"n": number}}
    for number in range(20_000)
]


def doubling_ctes(count: int = 40) -> str:
    """Return a query in which each CTE reads the previous CTE twice."""
    parts = ["t0 as (select 1 as a)"]
    parts += [f"t{n} as (select x.a from t{n - 1} x join t{n - 1} y on x.a = y.a)" for n in range(1, count)]
    return f"with {', '.join(parts)} select count(*) as n from t{count - 1}"


def doubling_expressions(count: int = 40) -> str:
    """Return a query in which each CTE uses a column of the previous CTE twice."""
    parts = ["t0 as (select 1 as a)", *(f"t{n} as (select a + a as a from t{n - 1})" for n in range(1, count))]
    return f"with {', '.join(parts)} select a from t{count - 1}"


EXPENSIVE_QUERIES: Sequence[Callable[[], str]] = (
    doubling_ctes,
    doubling_expressions,
    lambda: f"select {', '.join(['*'] * 24)} from (select {', '.join(['*'] * 24)} from postgres_logs)",
    lambda: (
        "select count(*) as n from postgres_logs a join postgres_logs b on a.timestamp < b.timestamp"
        " and a.event_message < b.event_message and regexp_contains(a.event_message, b.event_message)"
    ),
    lambda: (
        "select count(*) as n from postgres_logs a, postgres_logs b, postgres_logs c where a.id > b.id and b.id > c.id"
    ),
    lambda: "select sum(length(repeat(event_message, 11000))) as n from postgres_logs",
    lambda: "select sum(length(regexp_replace(repeat('a', 1000000), '(a?){1000}b', 'x'))) as n from postgres_logs",
    lambda: "select sum(edit_distance(repeat(a.event_message, 200), repeat(a.id, 200))) as n from postgres_logs a",
    lambda: "select max(array_length(regexp_extract_all(repeat(id, 20000), '(.)'))) as n from postgres_logs",
    lambda: "select count(*) as n from postgres_logs, unnest(generate_array(1, 1000000)) x",
    lambda: f"select '{uuid4().hex * 8000}' as a",
    lambda: f"select id from postgres_logs where regexp_contains(id, r'{'(x' * 2000}{')' * 2000}')",
    lambda: f"select {'(' * 20_000}1{')' * 20_000}",
)


class RepeatingClient(threading.Thread):
    """A client with its own key that repeats `send_requests` until the deadline."""

    def __init__(self, service: Service, key: str, seed: int, until_time: float) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.delays: list[float] = []
        self._service = service
        self._until = until_time
        self._client = httpx.Client(base_url=service.url, headers={"X-API-KEY": key}, timeout=60)

    def run(self) -> None:
        with self._client:
            while time.monotonic() < self._until:
                self.send_requests()

    def send_requests(self) -> None:
        raise NotImplementedError

    def request(self, method: str, path: str, **kinds: object) -> httpx.Response | None:
        """Send a request, and record its status and duration. Return None if there was no answer."""
        began = time.monotonic()
        try:
            answer = self._client.request(method, path, **kinds)  # type: ignore[arg-type]
        except httpx.HTTPError as problem:
            self.failures.append(f"{method} {path}: {problem!r}")
            return None
        self.statuses[answer.status_code] += 1
        self.delays.append(time.monotonic() - began)
        if answer.status_code not in {200, 429, 503}:
            self.failures.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer


class Sender(RepeatingClient):
    """A sender of events that records the acknowledged ids and repeats refused batches."""

    def __init__(self, service: Service, key: str, seed: int, until_time: float) -> None:
        super().__init__(service, key, seed, until_time)
        self.acknowledged: set[str] = set()
        self._unacknowledged: list[str] = []

    def send_requests(self) -> None:
        self._unacknowledged = self._unacknowledged or [str(uuid4()) for _ in range(self.rng.choice([1, 10, 100, 500]))]
        events = [
            {"id": event_id, "project": "ordinary", "event_message": f"event {event_id}"}
            for event_id in self._unacknowledged
        ]
        answer = self.request("POST", "/api/logs", params={"source_name": STREAM}, json=events)
        if answer is not None and answer.status_code == 200:
            self.acknowledged.update(self._unacknowledged)
            self._unacknowledged = []
        time.sleep(0.1)


class Reader(RepeatingClient):
    """A client that queries a built-in endpoint and sends short sandbox queries."""

    def send_requests(self) -> None:
        parameters = {"project": "ordinary"}
        if self.rng.random() < 0.5:
            parameters["sql"] = f"select count(*) as n, {self.rng.randrange(10**9)} as fresh from postgres_logs"
        self.request("GET", "/api/endpoints/query/logs.all", params=parameters)
        time.sleep(0.1)


class Attacker(RepeatingClient):
    """A hostile client that runs one attack at a time and ignores the answers."""

    def send_requests(self) -> None:
        attack = self.rng.choice(
            [
                self._run_expensive_query,
                self._run_expensive_query,
                self._run_expensive_query,
                self._send_unusual_events,
                self._send_compressed_bomb,
                self._stop_reading,
                self._send_unfinished_head,
            ]
        )
        with suppress(httpx.HTTPError, OSError):
            attack()

    def _run_expensive_query(self) -> None:
        sql = self.rng.choice(EXPENSIVE_QUERIES)()
        # Every fourth attacker on average disconnects before the answer.
        seconds = self.rng.choice([0.3, 30, 30, 30])
        self._client.post(
            "/api/endpoints/query/logs.all", params={"project": "poison"}, json={"sql": sql}, timeout=seconds
        )

    def _send_unusual_events(self) -> None:
        deep: object = 1
        for _ in range(self.rng.choice([30, 400, 3000])):
            deep = [deep] if self.rng.random() < 0.1 else {self.rng.choice("ab"): deep}
        many_fields: Mapping[str, object] = {f"{self.rng.choice('xyz{}%@')}{uuid4().hex[:6]}": 1 for _ in range(300)}
        large_text = "x" * self.rng.choice([10, 900_000])
        body = f'[{{"project": "poison", "metadata": {nested_json(deep)}}}]'
        self._client.post(f"/api/logs?source_name={STREAM}", content=body, headers={"Content-Type": "application/json"})
        self._client.post(
            f"/api/logs?source_name={STREAM}", json=[{"project": "poison", "metadata": many_fields, "m": large_text}]
        )

    def _send_compressed_bomb(self) -> None:
        packed = gzip.compress(b"[" + b"{}," * 2_000_000 + b"{}]", 1)
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        self._client.post(f"/api/logs?source_name={STREAM}", content=packed, headers=headers)

    def _stop_reading(self) -> None:
        head = (
            f"POST /api/logs?source_name={STREAM} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {self._client.headers['X-API-KEY']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {8 * MEBIBYTE}\r\n\r\n["
        )
        with self._connect() as connection:
            connection.sendall(head.encode() + b" " * MEBIBYTE)
            time.sleep(1)

    def _send_unfinished_head(self) -> None:
        with self._connect() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 40_000)
            connection.recv(100)

    def _connect(self) -> socket.socket:
        host, _, port = self._service.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)), timeout=10)


def nested_json(value: object) -> str:
    """Return the JSON text of a value that may be nested too deeply for `json.dumps`."""
    opened, closed = [], []
    while isinstance(value, dict | list):
        if isinstance(value, dict):
            ((name, value),) = value.items()
            opened.append(f"{json.dumps(name)}:".join(["{", ""]))
            closed.append("}")
        else:
            (value,) = value
            opened.append("[")
            closed.append("]")
    return f"{''.join(opened)}{json.dumps(value)}{''.join(reversed(closed))}"


class Killer(threading.Thread):
    """Thread that kills a randomly chosen child process of the service every few seconds."""

    def __init__(self, service: Service, seed: int, until_time: float) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._service = service
        self._rng = random.Random(seed)
        self._until = until_time

    def run(self) -> None:
        while time.monotonic() < self._until - SECONDS_BETWEEN_KILLS:
            time.sleep(self._rng.uniform(0.5, 1.5) * SECONDS_BETWEEN_KILLS)
            child_processes = descendants(self._service.process.pid)
            if child_processes:
                kill(self._rng.choice(child_processes))
                self.killed += 1


def start_clients(service: Service, seed: int, until_time: float) -> Iterator[RepeatingClient]:
    for number in range(SENDERS):
        yield Sender(service, create_key(service, "ingest"), seed + number, until_time)
    for number in range(READERS):
        yield Reader(service, create_key(service, "query"), seed + 100 + number, until_time)
    for number in range(ATTACKERS):
        key = create_key(service, "ingest query", pins={"project": "poison"})
        yield Attacker(service, key, seed + 200 + number, until_time)


def stored_ids(data_dir: Path) -> list[str]:
    """Return the ids of the ordinary events in the data folder of a stopped service."""
    engine = DuckDBEngine(data_dir, DuckDBTarget())
    engine.create_stream_tables([stream(STREAM)])
    sql = f"select id from `{STREAM}` where event_message like 'event %'"
    result_rows = [str(row[0]) for row in rows(engine, sql, limits=UNLIMITED)]
    engine.close()
    return result_rows


def quantile(seconds: Sequence[float], part: float) -> float:
    return sorted(seconds)[int(part * (len(seconds) - 1))]


@pytest.mark.torture
def test_ordinary_clients_are_served_during_attacks_and_kills(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(10**6)
    service = start(*MEMORY_FLAGS, env=QUERY_LIMITS)
    for first in range(0, len(OTHER_PROJECT_EVENTS), 5_000):
        assert service.send(STREAM, OTHER_PROJECT_EVENTS[first : first + 5_000]).status_code == 200
    base = family_bytes(service.process.pid)
    probe, until_time = MemoryProbe(service.process.pid), time.monotonic() + DURATION_SECONDS
    killer, all_callers = Killer(service, seed, until_time), list(start_clients(service, seed, until_time))
    for thread in (probe, killer, *all_callers):
        thread.start()
    for thread in (killer, *all_callers):
        thread.join(DURATION_SECONDS + 90)
    ordinary = [caller for caller in all_callers if not isinstance(caller, Attacker)]
    statuses = sum((client.statuses for client in ordinary), Counter[int]())
    delays = [delay for caller in ordinary for delay in caller.delays]
    with capsys.disabled():
        print(
            f"\nseed {seed}: {killer.killed} kills, statuses {dict(statuses)}, 99th percentile {quantile(delays, 0.99):.2f} s,"
            f" at most {probe.peak_bytes / MEBIBYTE:.0f} MiB, {base / MEBIBYTE:.0f} at the beginning",
            flush=True,
        )
    until(lambda: family_bytes(service.process.pid) < MEMORY_CEILING_BYTES, 30)
    probe.stopped.set()
    assert not any(caller.is_alive() for caller in all_callers)
    assert list(itertools.chain.from_iterable(client.failures for client in ordinary)) == []
    assert statuses[200] >= MIN_ANSWERED * statuses.total()
    assert probe.peak_bytes < 1.25 * MEMORY_CEILING_BYTES + base
    assert service.stop() == 0
    stored = stored_ids(service.data_dir)
    acknowledged = set().union(*(client.acknowledged for client in ordinary if isinstance(client, Sender)))
    assert acknowledged, f"seed {seed}"
    assert len(stored) == len(set(stored)), f"seed {seed}"
    assert acknowledged <= set(stored), f"seed {seed}"
    # Check the delays last, because they depend on the speed of the machine.
    assert quantile(delays, QUANTILE) < scaled(MAX_SECONDS)
