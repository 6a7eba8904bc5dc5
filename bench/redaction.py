"""`python -m bench.redaction`: what redaction costs, question by question, as a multiple of the same one without it.

Processor time of the whole process, asked in turns, the least of many: a busy machine moves it little.
EVENTS=2000000 makes the store larger; EVENTS_FILE=events.ndjson fills it with other events.
"""

import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from bench.events import PROJECTS, STREAM, batches
from bench.questions import Asked
from cordwood.app.in_process import InProcessApp, open_service
from cordwood.settings.settings import Serve, Settings

HEADER = "LF-ENDPOINT-REDACT-PII"
TURNS = 25
_PROJECT = os.environ.get("PROJECT", PROJECTS[3])
_JSON = {"content-type": "application/json"}


def _sql(name: str, sql: str) -> Asked:
    return Asked(name, "logs.all", {"project": _PROJECT, "sql": sql})


QUESTIONS = (
    Asked("newest 100 whole events", "logs.all", {"project": _PROJECT}),
    Asked("counts by day", "usage.api-counts", {"interval": "daily", "project": _PROJECT}),
    _sql("newest 100 messages", "select id, timestamp, event_message from edge_logs order by timestamp desc limit 100"),
    _sql("counts by minute", "select timestamp_trunc(timestamp, minute) t, count(*) n from edge_logs group by 1"),
    _sql(
        "numbers only",
        "select r.status_code, count(*) n from edge_logs, unnest(metadata) m, unnest(m.response) r group by 1",
    ),
    _sql(
        "a text of every event",
        "select count(*) n from edge_logs, unnest(metadata) m, unnest(m.request) r where r.path like '%/rest%'",
    ),
    _sql("every message", "select count(*) n from edge_logs where event_message like '%503%'"),
    _sql(
        "a text grouped by",
        "select r.method, count(*) n from edge_logs, unnest(metadata) m, unnest(m.request) r group by 1",
    ),
)


def main() -> int:
    with loaded() as components:
        print(f"{'':<28}  plain ms  redacted ms  times")
        for question in QUESTIONS:
            plain, redacted = least([partial(_ask, components, question, value) for value in ("false", "true")])
            print(f"{question.name:<28} {plain:9.2f} {redacted:12.2f} {redacted / plain:6.2f}")
    return 0


def least(works: Sequence[Callable[[], None]]) -> list[float]:
    """Return the least processor time of each in milliseconds; they run in turns, and once before they are measured."""
    taken: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(TURNS):
        for work, times in zip(works, taken, strict=True):
            began = _processor_ms()
            work()
            times.append(_processor_ms() - began)
    return [min(times) for times in taken]


@contextmanager
def loaded() -> Iterator[InProcessApp]:
    """Yield a service in this process that holds the benchmark's events."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(serve=msgspec.structs.replace(Serve(), data_dir=str(Path(folder) / "data")))
        with open_service(settings) as components:
            _load(components)
            yield components


def _load(components: InProcessApp) -> None:
    for body in _bodies():
        status, _, told = components.send("POST", f"/api/logs?source_name={STREAM}", body, _JSON)
        if status != 200:
            raise SystemExit(told.decode())


def _bodies() -> Iterator[bytes]:
    count, file = int(os.environ.get("EVENTS", "200000")), os.environ.get("EVENTS_FILE")
    if file is None:
        yield from batches(count)
        return
    with Path(file).open("rb") as lines:
        wanted = islice(lines, count)
        while some := list(islice(wanted, 5000)):
            yield b"[" + b",".join(some) + b"]"


def _processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def _ask(components: InProcessApp, question: Asked, redact: str) -> None:
    path = f"/api/endpoints/query/{question.endpoint}?{urlencode(dict(question.parameters))}"
    status, _, told = components.send("GET", path, b"", {HEADER: redact, "cache-control": "no-cache"})
    if status != 200:
        raise SystemExit(told.decode())


if __name__ == "__main__":
    sys.exit(main())
