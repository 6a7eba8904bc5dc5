"""`make bench`: load, ask, and compare with bench/baseline.json; `--update` writes that file.

A figure is told as milliseconds and as a ratio to a trivial request on the same service, so that another machine, or
a busy one, moves it little. EVENTS=2000000 makes the store larger.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.events import STREAM, batches
from bench.questions import QUESTIONS, Question

BASELINE = Path(__file__).with_name("baseline.json")
KEY = "bench-key"
ROUNDS = 15
# How much slower than before a gated question may be, as a ratio of ratios.
MARGIN = 1.5

Figures = dict[str, float]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as client:
        print(f"{load(client, int(os.environ.get('EVENTS', '200000'))):,.0f} events a second over HTTP, durable")
        unit = median_ms(lambda: client.get("/livez"))
        figures = {question.name: asked_ms(client, question) for question in QUESTIONS}
        print(f"{disk_bytes(Path(folder)) / 2**20:.0f} MiB on disk")
    ratios = {name: round(figure / unit, 2) for name, figure in figures.items()}
    slower = report(figures, ratios)
    if "--update" in sys.argv:
        BASELINE.write_text(json.dumps(ratios, indent=2) + "\n")
    return 1 if slower else 0


@contextmanager
def service(folder: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(folder / "data")]
    log = folder / "log"
    with log.open("wb") as out:
        environment = {**os.environ, "CORDWOOD_KEYS_PRIVATE": KEY}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        with httpx.Client(base_url=address(process, log), headers={"X-API-KEY": KEY}, timeout=300) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)


def address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    while process.poll() is None:
        found = re.search(r"listens on (http://\S+?)[,\s]", log.read_text())
        if found:
            return found[1]
        time.sleep(0.02)
    raise SystemExit(log.read_text())


def load(client: httpx.Client, count: int) -> float:
    """Events a second, the time of making them up left out."""
    seconds = 0.0
    for body in batches(count):
        began = time.perf_counter()
        answer = client.post(
            f"/api/logs?source_name={STREAM}", content=body, headers={"Content-Type": "application/json"}
        )
        seconds += time.perf_counter() - began
        answer.raise_for_status()
    return count / seconds


def asked_ms(client: httpx.Client, question: Question) -> float:
    def ask() -> httpx.Response:
        url = f"/api/endpoints/query/{question.endpoint}"
        return client.get(url, params=dict(question.parameters), headers={"Cache-Control": "no-cache"})

    return median_ms(ask)


def median_ms(ask: Callable[[], httpx.Response]) -> float:
    """After one round that warms what may be warm."""
    ask().raise_for_status()
    figures = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ask().raise_for_status()
        figures.append((time.perf_counter() - began) * 1000)
    return statistics.median(figures)


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def report(figures: Figures, ratios: Figures) -> list[str]:
    """Print a table; return the gated questions that are too slow."""
    before: Figures = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    slower = []
    for question in QUESTIONS:
        was, now = before.get(question.name), ratios[question.name]
        is_slower = was is not None and now > was * MARGIN
        mark = " SLOWER" if is_slower and question.gates else ""
        print(f"{question.name:<36} {figures[question.name]:8.2f} ms   x{now:<7} before x{was}{mark}")
        slower += [question.name] if mark else []
    return slower


if __name__ == "__main__":
    sys.exit(main())
