"""A real service of the benchmarks' own, on a folder of theirs: started, filled, asked, weighed and stopped."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from bench.events import STREAM
from bench.process_family import processor_seconds

KEY = "bench-key"
ENDPOINTS = Path(__file__).with_name("endpoints")
_START_SECONDS = 60
_HELD = 100
# As installed: pip compiles what it installs, and a checkout is compiled by its first start. Told to write nothing,
# each start would compile anew: a third of a second that no user waits for. An empty word tells nothing.
_COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
_IDLE_SHARE = 0.05
# What is left of a load is sealed two to four seconds after it, slices are settled five to ten after that: nothing goes on between.
_LONGER_THAN_A_LULL_SECONDS = 13.0


@dataclass(frozen=True)
class Target:
    """Where bodies are posted, and the statuses that say that a body is stored or has to be sent again."""

    address: str
    headers: Mapping[str, str]
    stored: frozenset[int] = frozenset({200})
    again: frozenset[int] = frozenset({429, 503})


API_LOGS = Target(f"/api/logs?source_name={STREAM}", {"X-API-KEY": KEY, "Content-Type": "application/json"})


class Service:
    """`client` speaks to it with a key for everything; what is timed goes over a connection with less around it."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, data: Path, engine: Path | None = None) -> None:
        """`engine` is the folder of an engine inside the process that keeps its own."""
        self.process = process
        self.data = data
        self._folders = [data, *([engine] if engine else [])]
        self.client = httpx.Client(base_url=url, headers={"X-API-KEY": KEY}, timeout=600)
        self._connection = http.client.HTTPConnection(self.client.base_url.host, self.client.base_url.port, timeout=600)

    @property
    def resident_mb(self) -> float:
        """What it holds of memory that no file backs, and of files that it maps: all that `ps` shows."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def most_resident_mb(self) -> float:
        """The most since the start, or since `forget_most`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6

    def forget_most(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def processor_seconds(self) -> float:
        return processor_seconds(self.process.pid)

    @property
    def disk_mb(self) -> float:
        files = (path for folder in self._folders for path in folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files) / 1e6

    def close(self) -> None:
        self.client.close()
        self._connection.close()

    def rows(self, endpoint: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = json.loads(self.ask(endpoint, parameters))["result"]
        return result

    def ask(self, endpoint: str, parameters: Mapping[str, str], *, kept: bool = False) -> bytes:
        """Over HTTP, worked out anew unless a kept answer will do."""
        headers = {"X-API-KEY": KEY} | ({} if kept else {"Cache-Control": "no-cache"})
        self._connection.request("GET", f"/api/endpoints/query/{endpoint}?{urlencode(parameters)}", headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{endpoint} {dict(parameters)}: {answer.status} {content.decode()[:500]}")
        return content

    def load(self, bodies: Iterator[bytes], connections: int, target: Target = API_LOGS) -> float:
        """Seconds until every body is acknowledged, by as many senders at once; what must wait is sent again.

        So many bodies at once are held in memory; reading them from their file is not the service's time.
        """
        seconds = 0.0
        while held := list(islice(bodies, _HELD)):
            seconds += self._send_all(held, connections, target)
        return seconds

    def _send_all(self, bodies: list[bytes], connections: int, target: Target) -> float:
        queue = _Bodies(bodies, target)
        url = self.client.base_url
        senders = [threading.Thread(target=_send, args=(url.host, url.port, queue)) for _ in range(connections)]
        began = time.perf_counter()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        if queue.faults:
            raise SystemExit(f"events were refused: {queue.faults[0]}")
        return time.perf_counter() - began

    def settle(self, seconds: float = 3.0) -> None:
        """Until what goes on in the background takes next to nothing of a processor for so long."""
        # Who is silent for long is hung up on.
        self._connection.close()
        while True:
            before = self.processor_seconds
            time.sleep(seconds)
            if self.processor_seconds - before < _IDLE_SHARE * seconds:
                return

    def settle_slices(self) -> None:
        """Until all that a load left to do is done."""
        self.settle(_LONGER_THAN_A_LULL_SECONDS)


@contextmanager
def service(folder: Path, *more: str) -> Iterator[Service]:
    """Over the same folder again: with what it stored."""
    log = folder / "log"
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(folder / "data")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--endpoints", str(ENDPOINTS), *more],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_COMPILED, "CORDWOOD_KEYS_PRIVATE": KEY},
        )
    started = None
    try:
        started = Service(process, _address(process, log), folder / "data", _engine_folder(more))
        yield started
    finally:
        if started is not None:
            started.close()
        process.terminate()
        process.wait(120)


def _engine_folder(arguments: tuple[str, ...]) -> Path | None:
    return next((Path(urlsplit(one).path) for one in arguments if one.startswith("chdb:///")), None)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        found = re.search(r"listens on (http://\S+?)[,\s]", log.read_text())
        if found:
            return found[1]
        time.sleep(0.005)
    raise SystemExit(f"the service did not start:\n{log.read_text()}")


class _Bodies:
    """Handed out one by one to whoever asks."""

    def __init__(self, bodies: list[bytes], target: Target) -> None:
        self.target = target
        self.faults: list[str] = []
        self._bodies: SimpleQueue[bytes] = SimpleQueue()
        for body in bodies:
            self._bodies.put(body)

    def take(self) -> bytes | None:
        try:
            return None if self.faults else self._bodies.get_nowait()
        except Empty:
            return None


def _send(host: str, port: int | None, queue: _Bodies) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=600)
    while (body := queue.take()) is not None:
        while (wait := _sent(connection, body, queue)) is not None:
            time.sleep(wait)
    connection.close()


def _sent(connection: http.client.HTTPConnection, body: bytes, queue: _Bodies) -> float | None:
    """How many seconds to wait before it is sent again, if it must."""
    target = queue.target
    connection.request("POST", target.address, body, dict(target.headers))
    answer = connection.getresponse()
    text = answer.read()
    if answer.status in target.again:
        return float(answer.headers.get("Retry-After", "1"))
    if answer.status not in target.stored:
        queue.faults.append(f"{answer.status}: {text.decode()[:300]}")
    return None
