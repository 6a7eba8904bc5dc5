"""`python -m bench.redaction`: what redaction costs, question by question, as a multiple of the same one without it.

Asked in turns, so that a busy machine slows both. EVENTS=2000000 makes the store larger.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.__main__ import load, service
from bench.events import PROJECTS
from bench.questions import Question

HEADER = "LF-ENDPOINT-REDACT-PII"
TURNS = 25
_PROJECT = PROJECTS[3]


def _sql(name: str, sql: str) -> Question:
    return Question(name, "logs.all", {"project": _PROJECT, "sql": sql})


QUESTIONS = (
    Question("newest 100 whole events", "logs.all", {"project": _PROJECT}),
    Question("counts by day", "usage.api-counts", {"interval": "daily", "project": _PROJECT}),
    _sql("newest 100 messages", "select id, timestamp, event_message from edge_logs order by timestamp desc limit 100"),
    _sql(
        "numbers only",
        "select r.status_code, count(*) n from edge_logs, unnest(metadata) m, unnest(m.response) r group by 1",
    ),
    _sql(
        "a text of every event",
        "select count(*) n from edge_logs, unnest(metadata) m, unnest(m.request) r where r.path like '%/rest%'",
    ),
    _sql("every message", "select count(*) n from edge_logs where event_message like '%503%'"),
)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as client:
        load(client, int(os.environ.get("EVENTS", "200000")))
        print(f"{'':<28}  plain ms  redacted ms  times")
        for question in QUESTIONS:
            plain, redacted = medians(client, question)
            print(f"{question.name:<28} {plain:9.2f} {redacted:12.2f} {redacted / plain:6.2f}")
    return 0


def medians(client: httpx.Client, question: Question) -> tuple[float, float]:
    taken: dict[str, list[float]] = {"false": [], "true": []}
    for value in taken:
        _ask(client, question, value)
    for _ in range(TURNS):
        for value, times in taken.items():
            began = time.perf_counter()
            _ask(client, question, value)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken["false"]), statistics.median(taken["true"])


def _ask(client: httpx.Client, question: Question, redact: str) -> None:
    url = f"/api/endpoints/query/{question.endpoint}"
    headers = {HEADER: redact, "Cache-Control": "no-cache"}
    client.get(url, params=dict(question.parameters), headers=headers).raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
