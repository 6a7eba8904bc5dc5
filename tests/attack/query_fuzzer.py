"""Asks a whole service random queries, and tells each that was answered with a failure of ours or in an engine's words.

A program, so that an engine that crashes takes nothing else along: `python -m tests.attack.query_fuzzer duckdb 7 500`
asks the queries 0 to 499 of seed 7. It prints a line of JSON for each query that was answered wrongly, and one at the
end that counts all. `python -m tests.attack.query_fuzzer duckdb 7:123` asks one query and prints its answer.
"""

import json
import re
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from cordwood.app.in_process import InProcessApp, open_service
from cordwood.settings.settings import Serve, Settings, Web
from tests.attack.random_queries import as_json, events, query
from tests.chdb_databases import fresh_database

STREAM: Final = "cloudflare.logs.prod"
PROJECT: Final = "default"
NOW_US: Final = 1_790_000_000_000_000
MOST_BYTES: Final = 12 * 10**9
# The formats differ in what they can write of a value.
ACCEPTED: Final = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
)
# What an engine says and no author of BigQuery's SQL knows; and names that only our own SQL has.
ENGINE_WORDS: Final = re.compile(
    r"VARCHAR|BIGINT|HUGEINT|\bDOUBLE\b|\bINT32\b|\bBLOB\b|STRUCT\(|_LITERAL|DECIMAL\(|Nullable|DB::|DateTime64|U?Int\d+\b|duckdb"
    r"|ClickHouse|Array\(|Tuple\(|Float(?:32|64)\b|FixedString|Dynamic\b|VARIANT|cordwood:|INTERNAL|\$\d|try_cast|TRY\(|list_\w+|__\w+"
    r"|SETTING|allow_\w+|max_\w+|store\.main|memory\.",
)
# A refusal for a stated cause is no failure: the time is up, memory or disk are short, the service is busy.
STATED: Final = frozenset({"limit.time", "limit.memory", "limit.disk", "limit.cancelled", "limit.busy"})
STUMBLED: Final = "The compiler broke on this query."


class Asked(msgspec.Struct, frozen=True):
    """A query and its answer."""

    seed: str
    language: str
    text: str
    status: int
    told: str

    def fault_at(self) -> str | None:
        """What is wrong with the answer."""
        if self.status == 200:
            return None
        try:
            error = json.loads(self.told)["error"]
        except (ValueError, KeyError, TypeError):
            return f"{self.status} without a problem: {self.told[:300]}"
        if self.status >= 500 and error["status"] not in STATED:
            return f"{error['status']}: {error['message']}"
        said = f"{error['message']} {error.get('hint', '')}"
        if error["message"] == STUMBLED:
            return "the compiler broke"
        words = ENGINE_WORDS.search(_without(said, self.text))
        return f"{words[0]!r} is the engine's word: {error['status']}: {said}" if words else None


def _without(said: str, text: str) -> str:
    """What was said, less what the author wrote himself."""
    for word in sorted(set(re.findall(r"[\w.$:]+", text)), key=len, reverse=True):
        said = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "", said)
    return said


@contextmanager
def service(engine: str) -> Iterator[InProcessApp]:
    """A service on that engine with the events that the queries read."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            engine=fresh_database() if engine == "clickhouse" else engine,
            serve=Serve(data_dir=str(Path(folder) / "data")),
            web=Web(log_level="error"),
        )
        settings = msgspec.structs.replace(settings, limits=msgspec.structs.replace(settings.limits, query_time=4.0))
        with open_service(settings, lambda: NOW_US) as inside:
            body = as_json(events(PROJECT, NOW_US - 60_000_000))
            for stream in (STREAM, "postgres.logs"):
                status, _, told = inside.send(
                    "POST", f"/api/logs?source_name={stream}", body, {"content-type": "application/json"}
                )
                assert status == 200, told
            yield inside


def ask(inside: InProcessApp, seed: str) -> Asked:
    return ask_text(inside, seed, *query(seed))


def ask_text(inside: InProcessApp, seed: str, language: str, text: str) -> Asked:
    """Ask a query; `seed` tells in which format its answer is wanted."""
    sent = {language: text, "project": PROJECT}
    accept = ACCEPTED[sum(seed.encode()) % len(ACCEPTED)]
    path, body = "/api/endpoints/query/logs.all", urlencode(sent).encode()
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": accept}
    try:
        status, _, answered = inside.send("POST", path, body, headers)
    except Exception as problem:  # noqa: BLE001 - whatever the application lets out is a finding
        return Asked(seed, language, text, 599, f"{type(problem).__name__}: {problem}")
    return Asked(seed, language, text, status, answered.decode("utf-8", "replace") if status != 200 else "")


def main(engine: str, seed: str, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with service(engine) as inside:
        statuses: Counter[int] = Counter()
        for number in range(count):
            # The last line that is told is the query that the engine crashed on, where it does.
            print(f"{seed}:{number}", file=sys.stderr, flush=True)
            asked = ask(inside, f"{seed}:{number}")
            statuses[asked.status] += 1
            wrong = asked.fault_at()
            if wrong is not None:
                print(json.dumps({"seed": asked.seed, "wrong": wrong, asked.language: asked.text}), flush=True)
        print(json.dumps({"statuses": statuses}))


def reproduce(engine: str, seed: str) -> None:
    with service(engine) as inside:
        asked = ask(inside, seed)
        print(asked.text, asked.status, asked.told, asked.fault_at(), sep="\n\n")


if __name__ == "__main__":
    if ":" in sys.argv[2]:
        reproduce(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
