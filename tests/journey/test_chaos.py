"""Attacks of every kind beside ordinary senders and readers, while processes of the service are killed at random."""

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

from bench.process_family import MemoryProbe, children, family_bytes, kill
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits
from tests.contract.engine_asking import rows, stream
from tests.journey.conftest import Service, Start, made_key
from tests.waiting import until

FULL = os.environ.get("TORTURE") == "full"
SECONDS = 15 * 60.0 if FULL else 25.0
SECONDS_BETWEEN_KILLS = 10.0 if FULL else 5.0
MEBIBYTE = 2**20
CEILING = 512 * MEBIBYTE
# The short form runs beside other tests, and has so few requests that a hundredth of them is the slowest.
MOST_SECONDS, PART, LEAST_ANSWERED = (2.0, 0.99, 0.99) if FULL else (5.0, 0.9, 0.95)
SENDERS, READERS, ATTACKERS = 3, 3, 6
STREAM = "postgres.logs"
FLAGS = ("--memory", f"{CEILING // MEBIBYTE}MiB")
LIMITS = {"CORDWOOD_LIMITS_QUERY_TIME": "5s"}
EVERYTHING = AnswerLimits(max_rows=10_000_000, seconds=300.0)

# Other projects' events, so many that a join of them with themselves takes longer than any limit.
POISONED = [
    {"project": "poison", "event_message": f"{number:06} {'ab' * 40}", "metadata": {"n": number}}
    for number in range(20_000)
]


def doubling_ctes(count: int = 40) -> str:
    """A query of which each common table expression reads the one before twice."""
    parts = ["t0 as (select 1 as a)"]
    parts += [f"t{n} as (select x.a from t{n - 1} x join t{n - 1} y on x.a = y.a)" for n in range(1, count)]
    return f"with {', '.join(parts)} select count(*) as n from t{count - 1}"


def doubling_expressions(count: int = 40) -> str:
    """A query of which each common table expression names a column of the one before twice in its own."""
    parts = ["t0 as (select 1 as a)", *(f"t{n} as (select a + a as a from t{n - 1})" for n in range(1, count))]
    return f"with {', '.join(parts)} select a from t{count - 1}"


QUERIES: Sequence[Callable[[], str]] = (
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


class Caller(threading.Thread):
    """A client with a key of its own that goes on until the time is over."""

    def __init__(self, service: Service, key: str, seed: int, until_time: float) -> None:
        super().__init__(daemon=True)
        self.dice = random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.complaints: list[str] = []
        self.slow: list[float] = []
        self._service = service
        self._until = until_time
        self._client = httpx.Client(base_url=service.url, headers={"X-API-KEY": key}, timeout=60)

    def run(self) -> None:
        with self._client:
            while time.monotonic() < self._until:
                self.act()

    def act(self) -> None:
        raise NotImplementedError

    def request(self, method: str, path: str, **kinds: object) -> httpx.Response | None:
        """Send one ordinary request and note its status and time; none where it had no answer at all."""
        began = time.monotonic()
        try:
            answer = self._client.request(method, path, **kinds)  # type: ignore[arg-type]
        except httpx.HTTPError as problem:
            self.complaints.append(f"{method} {path}: {problem!r}")
            return None
        self.statuses[answer.status_code] += 1
        self.slow.append(time.monotonic() - began)
        if answer.status_code not in {200, 429, 503}:
            self.complaints.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer


class Sender(Caller):
    """Sends events with ids and keeps those that were acknowledged; a refused batch is sent again as it was."""

    def __init__(self, service: Service, key: str, seed: int, until_time: float) -> None:
        super().__init__(service, key, seed, until_time)
        self.acknowledged: set[str] = set()
        self._waiting: list[str] = []

    def act(self) -> None:
        self._waiting = self._waiting or [str(uuid4()) for _ in range(self.dice.choice([1, 10, 100, 500]))]
        events = [{"id": one, "project": "ordinary", "event_message": f"event {one}"} for one in self._waiting]
        answer = self.request("POST", "/api/logs", params={"source_name": STREAM}, json=events)
        if answer is not None and answer.status_code == 200:
            self.acknowledged.update(self._waiting)
            self._waiting = []
        time.sleep(0.1)


class Reader(Caller):
    """Asks a shipped endpoint's own query and short queries over its sub-queries, in turns."""

    def act(self) -> None:
        parameters = {"project": "ordinary"}
        if self.dice.random() < 0.5:
            parameters["sql"] = f"select count(*) as n, {self.dice.randrange(10**9)} as fresh from postgres_logs"
        self.request("GET", "/api/endpoints/query/logs.all", params=parameters)
        time.sleep(0.1)


class Attacker(Caller):
    """Does one of the attacks at a time; what becomes of it is of no interest."""

    def act(self) -> None:
        attack = self.dice.choice(
            [self._query, self._query, self._query, self._poison, self._bomb, self._stall, self._head]
        )
        with suppress(httpx.HTTPError, OSError):
            attack()

    def _query(self) -> None:
        sql = self.dice.choice(QUERIES)()
        # One in four hangs up before it has an answer.
        seconds = self.dice.choice([0.3, 30, 30, 30])
        self._client.post(
            "/api/endpoints/query/logs.all", params={"project": "poison"}, json={"sql": sql}, timeout=seconds
        )

    def _poison(self) -> None:
        deep: object = 1
        for _ in range(self.dice.choice([30, 400, 3000])):
            deep = [deep] if self.dice.random() < 0.1 else {self.dice.choice("ab"): deep}
        named: Mapping[str, object] = {f"{self.dice.choice('xyz{}%@')}{uuid4().hex[:6]}": 1 for _ in range(300)}
        large = "x" * self.dice.choice([10, 900_000])
        body = f'[{{"project": "poison", "metadata": {nested_json(deep)}}}]'
        self._client.post(f"/api/logs?source_name={STREAM}", content=body, headers={"Content-Type": "application/json"})
        self._client.post(
            f"/api/logs?source_name={STREAM}", json=[{"project": "poison", "metadata": named, "m": large}]
        )

    def _bomb(self) -> None:
        packed = gzip.compress(b"[" + b"{}," * 2_000_000 + b"{}]", 1)
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        self._client.post(f"/api/logs?source_name={STREAM}", content=packed, headers=headers)

    def _stall(self) -> None:
        head = (
            f"POST /api/logs?source_name={STREAM} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {self._client.headers['X-API-KEY']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {8 * MEBIBYTE}\r\n\r\n["
        )
        with self._connected() as connection:
            connection.sendall(head.encode() + b" " * MEBIBYTE)
            time.sleep(1)

    def _head(self) -> None:
        with self._connected() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 40_000)
            connection.recv(100)

    def _connected(self) -> socket.socket:
        host, _, port = self._service.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)), timeout=10)


def nested_json(value: object) -> str:
    """JSON of a value that is nested deeper than the encoder of the standard library goes."""
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
    """Kills one of the processes below the service every few seconds."""

    def __init__(self, service: Service, seed: int, until_time: float) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._service = service
        self._dice = random.Random(seed)
        self._until = until_time

    def run(self) -> None:
        while time.monotonic() < self._until - SECONDS_BETWEEN_KILLS:
            time.sleep(self._dice.uniform(0.5, 1.5) * SECONDS_BETWEEN_KILLS)
            below = children(self._service.process.pid)
            if below:
                kill(self._dice.choice(below))
                self.killed += 1


def callers(service: Service, seed: int, until_time: float) -> Iterator[Caller]:
    for number in range(SENDERS):
        yield Sender(service, made_key(service, "ingest"), seed + number, until_time)
    for number in range(READERS):
        yield Reader(service, made_key(service, "query"), seed + 100 + number, until_time)
    for number in range(ATTACKERS):
        key = made_key(service, "ingest query", pins={"project": "poison"})
        yield Attacker(service, key, seed + 200 + number, until_time)


def stored_ids(data_dir: Path) -> list[str]:
    """The ids of the ordinary events in the folder of a service that has ended."""
    engine = DuckDBEngine(data_dir, DuckDBTarget())
    engine.prepare([stream(STREAM)])
    sql = f"select id from `{STREAM}` where event_message like 'event %'"
    found = [str(row[0]) for row in rows(engine, sql, limits=EVERYTHING)]
    engine.close()
    return found


def percentile(seconds: Sequence[float], part: float) -> float:
    return sorted(seconds)[int(part * (len(seconds) - 1))]


@pytest.mark.torture
def test_ordinary_callers_are_served_while_others_attack_and_processes_die(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(10**6)
    service = start(*FLAGS, env=LIMITS)
    for first in range(0, len(POISONED), 5_000):
        assert service.send(STREAM, POISONED[first : first + 5_000]).status_code == 200
    base = family_bytes(service.process.pid)
    probe, until_time = MemoryProbe(service.process.pid), time.monotonic() + SECONDS
    killer, all_callers = Killer(service, seed, until_time), list(callers(service, seed, until_time))
    for thread in (probe, killer, *all_callers):
        thread.start()
    for thread in (killer, *all_callers):
        thread.join(SECONDS + 90)
    ordinary = [one for one in all_callers if not isinstance(one, Attacker)]
    statuses = sum((one.statuses for one in ordinary), Counter[int]())
    slow = [one for caller in ordinary for one in caller.slow]
    with capsys.disabled():
        print(
            f"\nseed {seed}: {killer.killed} kills, statuses {dict(statuses)}, 99th percentile {percentile(slow, 0.99):.2f} s,"
            f" at most {probe.most / MEBIBYTE:.0f} MiB, {base / MEBIBYTE:.0f} at the beginning",
            flush=True,
        )
    until(lambda: family_bytes(service.process.pid) < CEILING, 30)
    probe.over.set()
    assert not any(one.is_alive() for one in all_callers)
    assert list(itertools.chain.from_iterable(one.complaints for one in ordinary)) == []
    assert statuses[200] >= LEAST_ANSWERED * statuses.total()
    assert percentile(slow, PART) < MOST_SECONDS
    assert probe.most < 1.25 * CEILING + base
    assert service.stop() == 0
    stored = stored_ids(service.data_dir)
    acknowledged = set().union(*(one.acknowledged for one in ordinary if isinstance(one, Sender)))
    assert acknowledged, f"seed {seed}"
    assert len(stored) == len(set(stored)), f"seed {seed}"
    assert acknowledged <= set(stored), f"seed {seed}"
