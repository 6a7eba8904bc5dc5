"""Memory stays below the ceiling under constant load, and no status is worse than 429 and 503."""

import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import httpx
import pytest

from bench.process_family import MemoryProbe, family_bytes
from tests.journey.conftest import PRIVATE, Service, Start

PROGRESS_SECONDS = 60.0
DURATION_SECONDS = 15 * 60.0 if os.environ.get("TORTURE") == "full" else 12.0
MEMORY_CEILING_BYTES = 256 * 10**6
MAX_IDLE_BYTES = 150 * 10**6
WRITER_COUNT, READER_COUNT = 6, 3
EDGE = "cloudflare.logs.prod"

PROJECTS = [f"project{number:02}" for number in range(40)]
READ_REQUESTS: Sequence[tuple[str, Mapping[str, str]]] = (
    ("usage.api-counts", {"interval": "hourly", "project": "project0"}),
    ("logs.all", {"project": "project01"}),
    ("logs.all", {"project": "project02", "sql": "select count(*) as n from edge_logs"}),
)


class Client(threading.Thread):
    """Thread that sends requests until a deadline, and pauses as Retry-After asks."""

    def __init__(self, url: str, until: float, seed: int) -> None:
        super().__init__()
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self.random = random.Random(seed)
        self._url = url
        self._until = until

    def run(self) -> None:
        with httpx.Client(base_url=self._url, headers={"X-API-KEY": PRIVATE}, timeout=120) as client:
            while time.monotonic() < self._until:
                began = time.monotonic()
                try:
                    answer = self.send(client)
                except httpx.HTTPError as problem:
                    self.failures.append(repr(problem))
                    return
                self._record(answer, time.monotonic() - began)

    def send(self, client: httpx.Client) -> httpx.Response:
        raise NotImplementedError

    def _record(self, answer: httpx.Response, seconds: float) -> None:
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.seconds.append(seconds)
        elif answer.status_code in {429, 503}:
            time.sleep(min(2.0, float(answer.headers["Retry-After"])))
        else:
            self.failures.append(f"{answer.status_code} {answer.text[:300]}")


class Writer(Client):
    """A client that sends batches of various sizes. Each event has about a kilobyte or more."""

    accepted = 0

    def send(self, client: httpx.Client) -> httpx.Response:
        events = [edge_event(self.random) for _ in range(self.random.choice([1, 100, 1000, 5000]))]
        answer = client.post("/api/logs", params={"source_name": EDGE}, json=events)
        if answer.status_code == 200:
            self.accepted += answer.json()["accepted"]
        return answer


class Reader(Client):
    def send(self, client: httpx.Client) -> httpx.Response:
        name, parameters = self.random.choice(READ_REQUESTS)
        headers = {"Cache-Control": "no-cache"}
        return client.get(f"/api/endpoints/query/{name}", params=dict(parameters), headers=headers)


def edge_event(rng: random.Random) -> dict[str, object]:
    project, path = rng.choice(PROJECTS), f"/rest/v1/table{rng.randrange(200)}"
    ray = f"{rng.getrandbits(64):016x}"
    request = {
        "host": f"{project}.example.co",
        "method": rng.choice(["GET", "POST"]),
        "path": path,
        "url": f"https://{project}.example.co{path}",
        "headers": {"cf_ray": ray, "user_agent": "client/2.0 " + "x" * 300, "referer": f"https://{ray}.example.com/"},
        "cf": {
            "asn": rng.randrange(9000),
            "city": f"City{rng.randrange(99)}",
            "country": "DE",
            "note": "y" * 400,
        },
    }
    response = {"status_code": rng.choice([200, 201, 404, 500]), "origin_time": rng.randrange(900)}
    return {
        "id": str(uuid4()),
        "project": project,
        "event_message": f"{request['method']} | {ray} | {request['url']}",
        "metadata": {"request": request, "response": response},
    }


def summarize_latencies(kind: str, clients: Sequence[Client]) -> str:
    """Return a line with the latencies of successful requests and the number of answers for each status."""
    seconds = [duration for client in clients for duration in client.seconds.copy()]
    statuses = sum((client.statuses.copy() for client in clients), Counter[int]())
    at = statistics.quantiles(seconds, n=100) if len(seconds) > 1 else [0.0] * 99
    counts = ", ".join(f"{count:,} of status {status}" for status, count in sorted(statuses.items()))
    return f"{kind}: median {at[49]:.3f} s, 99th percentile {at[98]:.3f} s ({counts})"


@dataclass(frozen=True, slots=True)
class Load:
    """Writers and readers with a memory probe, which `run` starts."""

    writers: Sequence[Writer]
    readers: Sequence[Reader]
    probe: MemoryProbe
    began: float

    def run(self, report: Callable[[str], None]) -> None:
        """Run all clients until they end. Report progress once a minute and at the end."""
        clients: Sequence[threading.Thread] = (*self.writers, *self.readers)
        for thread in (self.probe, *clients):
            thread.start()
        while not _all_done(clients, PROGRESS_SECONDS):
            report(self.counts())
        self.probe.stopped.set()
        self.probe.join()
        report(self.counts())

    @property
    def accepted(self) -> int:
        return sum(writer.accepted for writer in self.writers)

    def counts(self) -> str:
        return (
            f"{time.monotonic() - self.began:.0f} s, {self.accepted:,} events, {self.probe.peak_bytes / 1e6:.0f} MB at most; "
            + "; ".join(
                (summarize_latencies("acknowledgements", self.writers), summarize_latencies("queries", self.readers))
            )
        )


def _all_done(clients: Sequence[threading.Thread], within_seconds: float) -> bool:
    deadline = time.monotonic() + within_seconds
    for client in clients:
        client.join(max(0.0, deadline - time.monotonic()))
    return not any(client.is_alive() for client in clients)


def start_load(service: Service) -> Load:
    began = time.monotonic()
    writers = [Writer(service.url, began + DURATION_SECONDS, number) for number in range(WRITER_COUNT)]
    readers = [Reader(service.url, began + DURATION_SECONDS, number) for number in range(READER_COUNT)]
    return Load(writers, readers, MemoryProbe(service.process.pid), began)


@pytest.mark.torture
def test_memory_stays_below_a_ceiling_of_256_mb_under_load(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    def report(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="", flush=True)

    service = start("--memory", "256MB")
    base = family_bytes(service.process.pid)
    report(f"idle {base / 1e6:.0f} MB")
    assert base < MAX_IDLE_BYTES
    load = start_load(service)
    load.run(report)
    assert not [failure for client in (*load.writers, *load.readers) for failure in client.failures]
    assert all(client.seconds for client in load.readers)
    assert load.probe.peak_bytes < 1.25 * MEMORY_CEILING_BYTES + base
    counted = service.client.post("/api/query", params={"sql": f"select count(*) as n from `{EDGE}`"})
    if counted.status_code == 200:
        assert counted.json()["result"] == [{"n": load.accepted}]
    assert service.stop() == 0
