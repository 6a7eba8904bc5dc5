"""A fuzzer that sends random queries to a service, and reports internal errors and messages with words of the engine.

It is a program, so that a crash of the engine does not end the tests. `python -m tests.attack.query_fuzzer duckdb 7
500` runs queries 0 to 499 of seed 7. It prints a line of JSON for each query with a wrong answer, and a last line with
the number of answers for each status. `python -m tests.attack.query_fuzzer duckdb 7:123` runs one query and prints its
answer.
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

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import ServeSettings, Settings, WebSettings
from tests.attack.random_queries import as_json, events, random_query
from tests.chdb_databases import fresh_database

STREAM: Final = "cloudflare.logs.prod"
PROJECT: Final = "default"
NOW_US: Final = 1_790_000_000_000_000
MAX_ADDRESS_SPACE_BYTES: Final = 12 * 10**9
# Media types of the answers. The formats differ in the values that they can represent.
ACCEPTED_MEDIA_TYPES: Final = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
)
# Words of the engines that BigQuery's SQL does not have, and names that only compiled SQL contains.
ENGINE_WORDS: Final = re.compile(
    r"VARCHAR|BIGINT|HUGEINT|\bDOUBLE\b|\bINT32\b|\bBLOB\b|STRUCT\(|_LITERAL|DECIMAL\(|Nullable|DB::|DateTime64|U?Int\d+\b|duckdb"
    r"|ClickHouse|Array\(|Tuple\(|Float(?:32|64)\b|FixedString|Dynamic\b|VARIANT|cordwood:|INTERNAL|\$\d|try_cast|TRY\(|list_\w+|__\w+"
    r"|SETTING|allow_\w+|max_\w{4,}|store\.main|memory\.",
)
# Codes of faults that have status 500 or higher because of a limit. They are not bugs.
LIMIT_CODES: Final = frozenset({"limit.time", "limit.memory", "limit.disk", "limit.cancelled", "limit.busy"})
COMPILER_ERROR: Final = "The compiler broke on this query."


class FuzzedQuery(msgspec.Struct, frozen=True):
    """A random query and its answer; `response_text` is kept only for statuses other than 200."""

    seed: str
    language: str
    text: str
    status: int
    response_text: str

    def defect(self) -> str | None:
        """Return a description of what is wrong with the answer; None if nothing is."""
        if self.status == 200:
            return None
        try:
            error = json.loads(self.response_text)["error"]
        except (ValueError, KeyError, TypeError):
            return f"{self.status} without a problem: {self.response_text[:300]}"
        if self.status >= 500 and error["status"] not in LIMIT_CODES:
            return f"{error['status']}: {error['message']}"
        error_text = f"{error['message']} {error.get('hint', '')}"
        if error["message"] == COMPILER_ERROR:
            return "the compiler broke"
        words = ENGINE_WORDS.search(_without_words_of(error_text, self.text))
        return f"{words[0]!r} is the engine's word: {error['status']}: {error_text}" if words else None


def _without_words_of(error_text: str, query_text: str) -> str:
    """Remove the query's own words from an error message.

    A message may quote the query, and words of the query are not words of the engine.
    """
    for word in sorted(set(re.findall(r"[\w.$:]+", query_text)), key=len, reverse=True):
        error_text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "", error_text)
    return error_text


@contextmanager
def open_fuzzed_service(engine: str) -> Iterator[InProcessApp]:
    """Open a service on an engine, with the events that the random queries read."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            engine=fresh_database() if engine == "clickhouse" else engine,
            serve=ServeSettings(data_dir=str(Path(folder) / "data")),
            web=WebSettings(log_level="error"),
        )
        settings = msgspec.structs.replace(settings, limits=msgspec.structs.replace(settings.limits, query_time=4.0))
        with open_in_process_app(settings, lambda: NOW_US) as app:
            body = as_json(events(PROJECT, NOW_US - 60_000_000))
            for stream in (STREAM, "postgres.logs"):
                status, _, response_text = app.send(
                    "POST", f"/api/logs?source_name={stream}", body, {"content-type": "application/json"}
                )
                assert status == 200, response_text
            yield app


def run_query_of_seed(app: InProcessApp, seed: str) -> FuzzedQuery:
    return run_query(app, seed, *random_query(seed))


def run_query(app: InProcessApp, seed: str, language: str, text: str) -> FuzzedQuery:
    """Send a query; the format of the answer depends on `seed`."""
    sent = {language: text, "project": PROJECT}
    accept = ACCEPTED_MEDIA_TYPES[sum(seed.encode()) % len(ACCEPTED_MEDIA_TYPES)]
    path, body = "/api/endpoints/query/logs.all", urlencode(sent).encode()
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": accept}
    try:
        status, _, answered = app.send("POST", path, body, headers)
    except Exception as problem:  # noqa: BLE001 - any exception of the application is a finding
        return FuzzedQuery(seed, language, text, 599, f"{type(problem).__name__}: {problem}")
    return FuzzedQuery(seed, language, text, status, answered.decode("utf-8", "replace") if status != 200 else "")


def main(engine: str, seed: str, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES))
    with open_fuzzed_service(engine) as app:
        statuses: Counter[int] = Counter()
        for number in range(count):
            # If the engine crashes, the last line of standard error names the query.
            print(f"{seed}:{number}", file=sys.stderr, flush=True)
            outcome = run_query_of_seed(app, f"{seed}:{number}")
            statuses[outcome.status] += 1
            wrong = outcome.defect()
            if wrong is not None:
                print(json.dumps({"seed": outcome.seed, "wrong": wrong, outcome.language: outcome.text}), flush=True)
        print(json.dumps({"statuses": statuses}))


def reproduce(engine: str, seed: str) -> None:
    with open_fuzzed_service(engine) as app:
        outcome = run_query_of_seed(app, seed)
        print(outcome.text, outcome.status, outcome.response_text, outcome.defect(), sep="\n\n")


if __name__ == "__main__":
    if ":" in sys.argv[2]:
        reproduce(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
