"""`python -m bench.redaction`: what redaction costs, question by question, as a multiple of the same one without it.

Processor time of the whole process, asked in turns, the least of many: a busy machine moves it little.
EVENTS=2000000 makes the store larger; EVENTS_FILE=events.ndjson fills it with other events.
"""

import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from bench.events import PROJECTS, STREAM, batches
from bench.questions import Asked
from cordwood.app.in_process import Inside, opened
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
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(serve=msgspec.structs.replace(Serve(), data_dir=str(Path(folder) / "data")))
        with opened(settings) as components:
            load(components)
            print(f"{'':<28}  plain ms  redacted ms  times")
            for question in QUESTIONS:
                plain, redacted = least(components, question)
                print(f"{question.name:<28} {plain:9.2f} {redacted:12.2f} {redacted / plain:6.2f}")
    return 0


def least(components: Inside, question: Asked) -> tuple[float, float]:
    taken: dict[str, list[float]] = {"false": [], "true": []}
    for value in taken:
        _ask(components, question, value)
    for _ in range(TURNS):
        for value, times in taken.items():
            began = processor_ms()
            _ask(components, question, value)
            times.append(processor_ms() - began)
    return min(taken["false"]), min(taken["true"])


def load(components: Inside) -> None:
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


def processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def _ask(components: Inside, question: Asked, redact: str) -> None:
    path = f"/api/endpoints/query/{question.endpoint}?{urlencode(dict(question.parameters))}"
    status, _, told = components.send("GET", path, b"", {HEADER: redact, "cache-control": "no-cache"})
    if status != 200:
        raise SystemExit(told.decode())


if __name__ == "__main__":
    sys.exit(main())
