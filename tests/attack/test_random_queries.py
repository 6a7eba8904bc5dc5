"""Random queries over every permitted function cause no internal error and no message with words of the engine.

Each engine runs in a separate process, so that a crash does not end the tests. `make torture` runs for an hour.
QUERY_SEED selects other queries.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cordwood.app.in_process import InProcessApp
from tests.attack.query_fuzzer import open_fuzzed_service, run_query
from tests.chdb_databases import IS_INSTALLED, SKIP_REASON

IS_FULL: Final = os.environ.get("TORTURE") == "full"
QUERY_SEED: Final = os.environ.get("QUERY_SEED", "1")
# Number of queries. In CI, they take about 18 seconds on each engine; the full number takes about half an hour.
QUERY_COUNTS: Final = {"duckdb": 60_000, "clickhouse": 20_000} if IS_FULL else {"duckdb": 600, "clickhouse": 250}
MAX_SECONDS: Final = 3 * 3600 if IS_FULL else 240

# Queries that an earlier version answered with 500, or for which its compiler raised an unexpected exception.
EARLIER_FAILURES: Final = (
    "select x, max_by(x, array(select as struct id from edge_logs)) as v from edge_logs, unnest([1, 2]) as x group by grouping sets ((x), ())",
    "select v from (select 1 in unnest((select as struct 1 as a, 2 as b)) as v from edge_logs) where to_json_string(v) <> ''",
    "select make_interval(1, '') as v from edge_logs",
    "select [true][safe_ordinal(5)][safe_offset(parse_json(t.metadata.s))] as v, 'a'[ordinal(max(x))] as w from edge_logs t, unnest([1]) as x",
    "select date_from_unix_date(unix_micros(timestamp)) as v from edge_logs",
    "select x, grouping(x) as g, min_by(date(0, 1, 31), x) as v from unnest([1, 2]) as x, edge_logs t group by rollup(x)",
)  # fmt: skip

# Queries with a number in each place where the compiler reads one. `N` is replaced by more digits than `int` accepts.
# Some have digits that are not ASCII.
_LONG_NUMBER: Final = "9" * 5000
QUERIES_WITH_NUMBER: Final = (
    *("select N as v", "select N.5 as v", "select 1eN as v", "select 0xN as v", "select 1 as v limit N", "select 1 as v order by N"),
    *("select interval 'N' day as v", "select interval 'N' second as v", "select interval 'N-1' year to month as v"),
    *("select json_value('[]', '$[N]') as v", "select format('%Nd', 1) as v", "select format('%²d', 1) as v"),
    *("select interval '²' day as v", "select [1][offset(N)] as v", "select json_value('[]', '$[²]') as v"),
)  # fmt: skip
QUERIES_THAT_FAILED: Final = (*EARLIER_FAILURES, *(sql.replace("N", _LONG_NUMBER) for sql in QUERIES_WITH_NUMBER))


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def opened_service(request: pytest.FixtureRequest) -> Iterator[InProcessApp]:
    with open_fuzzed_service(request.param) as app:
        yield app


def test_earlier_failures_are_answered_or_refused_without_engine_terms(opened_service: InProcessApp) -> None:
    for sql in QUERIES_THAT_FAILED:
        answer = run_query(opened_service, "1", "sql", sql)
        assert answer.defect() is None, (sql[:200], answer.response_text)


@pytest.mark.torture
@pytest.mark.parametrize("engine", QUERY_COUNTS)
def test_random_queries_are_answered_or_refused_without_engine_terms(engine: str) -> None:
    if engine == "clickhouse" and not IS_INSTALLED:
        pytest.skip(SKIP_REASON)
    command = [sys.executable, "-m", "tests.attack.query_fuzzer", engine, QUERY_SEED, str(QUERY_COUNTS[engine])]
    completed = subprocess.run(
        command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False, cwd=Path(__file__).parents[2]
    )
    assert completed.returncode == 0, f"ended with {completed.returncode} at {completed.stderr[-1000:]}"
    *wrong, totals = completed.stdout.splitlines()
    assert wrong == []
    statuses = json.loads(totals)["statuses"]
    assert statuses["200"] > QUERY_COUNTS[engine] / 5
