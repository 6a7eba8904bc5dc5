"""`python -m bench.redaction`: the cost of redaction for each question, as a multiple of the same question without it.

A figure is the minimum processor time of the whole process over many rounds, with both variants measured round-robin.
Therefore other load on the machine changes it little. EVENTS=2000000 sets the number of stored events.
EVENTS_FILE=events.ndjson sets the file from which they are read.
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
from bench.questions import EndpointCall
from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import ServeSettings, Settings

REDACTION_HEADER = "LF-ENDPOINT-REDACT-PII"
ROUNDS = 25
_PROJECT = os.environ.get("PROJECT", PROJECTS[3])
_JSON = {"content-type": "application/json"}


def _call_with_sql(name: str, sql: str) -> EndpointCall:
    return EndpointCall(name, "logs.all", {"project": _PROJECT, "sql": sql})


QUESTIONS = (
    EndpointCall("newest 100 whole events", "logs.all", {"project": _PROJECT}),
    EndpointCall("counts by day", "usage.api-counts", {"interval": "daily", "project": _PROJECT}),
    _call_with_sql(
        "newest 100 messages", "select id, timestamp, event_message from edge_logs order by timestamp desc limit 100"
    ),
    _call_with_sql(
        "counts by minute", "select timestamp_trunc(timestamp, minute) t, count(*) n from edge_logs group by 1"
    ),
    _call_with_sql(
        "numbers only",
        "select r.status_code, count(*) n from edge_logs, unnest(metadata) m, unnest(m.response) r group by 1",
    ),
    _call_with_sql(
        "a text of every event",
        "select count(*) n from edge_logs, unnest(metadata) m, unnest(m.request) r where r.path like '%/rest%'",
    ),
    _call_with_sql("every message", "select count(*) n from edge_logs where event_message like '%503%'"),
    _call_with_sql(
        "a text grouped by",
        "select r.method, count(*) n from edge_logs, unnest(metadata) m, unnest(m.request) r group by 1",
    ),
)


def main() -> int:
    with loaded_app() as app:
        print(f"{'':<28}  plain ms  redacted ms  times")
        for question in QUESTIONS:
            plain, redacted = min_processor_ms(
                [partial(_send_query, app, question, value) for value in ("false", "true")]
            )
            print(f"{question.name:<28} {plain:9.2f} {redacted:12.2f} {redacted / plain:6.2f}")
    return 0


def min_processor_ms(actions: Sequence[Callable[[], None]]) -> list[float]:
    """Return the minimum processor time of each action in milliseconds, measured round-robin after one warm-up run."""
    measured: list[list[float]] = [[] for _ in actions]
    for action in actions:
        action()
    for _ in range(ROUNDS):
        for action, times in zip(actions, measured, strict=True):
            started_at = _processor_ms()
            action()
            times.append(_processor_ms() - started_at)
    return [min(times) for times in measured]


@contextmanager
def loaded_app() -> Iterator[InProcessApp]:
    """Yield a service in this process, with the benchmark's events stored."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(serve=msgspec.structs.replace(ServeSettings(), data_dir=str(Path(folder) / "data")))
        with open_in_process_app(settings) as app:
            _load_events(app)
            yield app


def _load_events(app: InProcessApp) -> None:
    for body in _event_bodies():
        status, _, answer = app.send("POST", f"/api/logs?source_name={STREAM}", body, _JSON)
        if status != 200:
            raise SystemExit(answer.decode())


def _event_bodies() -> Iterator[bytes]:
    count, file = int(os.environ.get("EVENTS", "200000")), os.environ.get("EVENTS_FILE")
    if file is None:
        yield from batches(count)
        return
    with Path(file).open("rb") as lines:
        selected = islice(lines, count)
        while batch := list(islice(selected, 5000)):
            yield b"[" + b",".join(batch) + b"]"


def _processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def _send_query(app: InProcessApp, question: EndpointCall, redact: str) -> None:
    path = f"/api/endpoints/query/{question.endpoint}?{urlencode(dict(question.parameters))}"
    status, _, answer = app.send("GET", path, b"", {REDACTION_HEADER: redact, "cache-control": "no-cache"})
    if status != 200:
        raise SystemExit(answer.decode())


if __name__ == "__main__":
    sys.exit(main())
