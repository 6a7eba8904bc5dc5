"""Queries that ignore interrupts are ended by killing the engine's process; others are served, and memory is freed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import pytest

from bench.process_family import MemoryProbe, descendants, family_bytes
from tests.journey.conftest import Service, Start, start
from tests.machine_speed import scaled
from tests.waiting import until

__all__ = ["start"]

MEMORY_CEILING_BYTES = 512 * 2**20
STREAM = "postgres.logs"
EVENTS = [{"project": "p", "event_message": f"{number:06} {'ab' * 40}"} for number in range(20_000)]
FROM_EVENT_PAIRS = (
    "from postgres_logs a join postgres_logs b on a.timestamp < b.timestamp and a.event_message < b.event_message"
)
ATTACKING_QUERIES = (
    f"select count(*) as n {FROM_EVENT_PAIRS} and regexp_contains(a.event_message, b.event_message)",
    f"select count(*) as n {FROM_EVENT_PAIRS} and edit_distance(a.event_message, b.event_message) = 7000",
    "select sum(length(regexp_replace(repeat(event_message, 180), '(a?){1000}b', 'x'))) as n from postgres_logs",
    f"select count(*) as n {FROM_EVENT_PAIRS} and array_length(regexp_extract_all(a.event_message, b.event_message)) = 7",
)
# The engine cannot interrupt an expression of one batch of rows, so several expressions take long on a fast machine too.
LONG_UNINTERRUPTIBLE_QUERY = "select sum({}) as n from postgres_logs".format(
    " + ".join(f"length(regexp_replace(repeat(event_message, {n}), '(a?){{1000}}b', 'x'))" for n in range(173, 181))
)
ALLOWED_CODES = {
    "limit.killed",
    "limit.quarantined-query",
    "limit.time",
    "limit.memory",
    "query.value",
    "limit.plan",
    # The service answers `limit.time` if it repeats a query in a new engine process, and the query reaches its time
    # limit.
    "engine.unreachable",
}

QUARANTINED = "limit.quarantined-query"
# Codes of answers if the engine's process ended during the query, because of this query or of another one.
ENDED_CODES = {"limit.killed", "engine.unreachable"}
MAX_ATTACKS = 10


class SavedQueryReader(threading.Thread):
    """A thread that runs a saved query repeatedly, and records the statuses and durations.

    Each run is for a new project, so that no answer comes from the cache.
    """

    def __init__(self, service: Service, key: str) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.statuses: set[int] = set()
        self.over = threading.Event()
        self._client = httpx.Client(base_url=service.url, headers={"X-API-KEY": key}, timeout=60)

    def run(self) -> None:
        with self._client:
            while not self.over.wait(0.05):
                began = time.monotonic()
                parameters = {"project": str(uuid4())}
                self.statuses.add(self._client.get("/api/endpoints/query/logs.all", params=parameters).status_code)
                self.seconds.append(time.monotonic() - began)


def create_key(service: Service) -> str:
    return str(service.client.post("/api/access-tokens", json={"scopes": "query"}).json()["token"])


def send_attack(service: Service, key: str, sql: str) -> str:
    parameters = {"project": "p", "sql": sql}
    answer = httpx.get(
        f"{service.url}/api/endpoints/query/logs.all", params=parameters, headers={"X-API-KEY": key}, timeout=60
    )
    return "answered" if answer.status_code == 200 else str(answer.json()["error"]["status"])


def attack_repeatedly(service: Service, key: str, sql: str) -> list[str]:
    """Repeat a query as long as the engine's process ends while the query runs; return the codes of all answers."""
    codes = [send_attack(service, key, sql)]
    while codes[-1] in ENDED_CODES and len(codes) < MAX_ATTACKS:
        codes.append(send_attack(service, key, sql))
    return codes


def test_others_are_served_while_uninterruptible_queries_are_killed(start: Start) -> None:
    service = start("--memory", "512MiB", env={"CORDWOOD_LIMITS_QUERY_TIME": "2s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    base = family_bytes(service.process.pid)
    probe, readers = (
        MemoryProbe(service.process.pid),
        [SavedQueryReader(service, create_key(service)) for _ in range(2)],
    )
    for thread in (probe, *readers):
        thread.start()
    keys = [create_key(service) for _ in ATTACKING_QUERIES]
    with ThreadPoolExecutor(len(ATTACKING_QUERIES)) as attackers:
        codes = list(attackers.map(attack_repeatedly, [service] * len(ATTACKING_QUERIES), keys, ATTACKING_QUERIES))
    time.sleep(1)
    for reader in readers:
        reader.over.set()
        reader.join()
    seconds = sorted(item for reader in readers for item in reader.seconds)
    assert set().union(*codes) <= ALLOWED_CODES | {"answered"}
    assert seconds[int(0.99 * (len(seconds) - 1))] < scaled(2.0)
    assert set().union(*(reader.statuses for reader in readers)) == {200}
    assert probe.peak_bytes < 1.25 * MEMORY_CEILING_BYTES + base
    until(lambda: family_bytes(service.process.pid) < MEMORY_CEILING_BYTES, 30)
    probe.stopped.set()
    # A query that ran beside others is at first only suspected of blocking the engine. No query may end the process
    # repeatedly, and the killed queries are quarantined for every key.
    assert not {answers[-1] for answers in codes} & ENDED_CODES
    killed = [sql for sql, answers in zip(ATTACKING_QUERIES, codes, strict=True) if answers[-1] == QUARANTINED]
    assert {send_attack(service, create_key(service), sql) for sql in killed} == {QUARANTINED}
    assert service.stop() == 0


def test_a_killed_query_is_refused_although_its_caller_hung_up(start: Start) -> None:
    """Quarantine a killed query even if its caller hung up.

    Otherwise, one key could end the engine's process repeatedly.
    """
    service = start("--memory", "512MiB", env={"CORDWOOD_LIMITS_QUERY_TIME": "2s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    key, processes = create_key(service), descendants(service.process.pid)
    parameters = {"project": "p", "sql": LONG_UNINTERRUPTIBLE_QUERY}
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(
            f"{service.url}/api/endpoints/query/logs.all", params=parameters, headers={"X-API-KEY": key}, timeout=0.5
        )
    until(lambda: not set(processes) <= set(descendants(service.process.pid)), 30)
    time.sleep(1)
    assert send_attack(service, key, LONG_UNINTERRUPTIBLE_QUERY) == "limit.quarantined-query"
    assert service.stop() == 0
