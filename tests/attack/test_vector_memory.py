"""The results of a function for one vector of rows take bounded memory, although DuckDB's limit does not count them."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MAX_GROWTH_BYTES: Final = 600 * 10**6
TIMEOUT_SECONDS: Final = 120

# Expressions whose results exceed the bound, so that they are refused.
RESULTS_BEYOND_BOUND: Final = {
    "repeat": "length(repeat('a', 16385 + mod(x, 7)))",
    "repeat of bytes": "length(repeat(b'a', 16385 + mod(x, 7)))",
    "lpad": "length(lpad('a', 16385 + mod(x, 7)))",
    "rpad": "length(rpad('a', 16385 + mod(x, 7), 'bc'))",
    "generate_array": "array_length(generate_array(1, 4097 + mod(x, 7)))",
    "generate_array of fractions": "array_length(generate_array(1.5, 4099 + mod(x, 7)))",
    "initcap": "length(initcap(repeat('a', 2049 + mod(x, 7))))",
    "to_code_points": "array_length(to_code_points(repeat('a', 2049 + mod(x, 7))))",
    "reverse of wide characters": "length(reverse(repeat('ä', 2049 + mod(x, 7))))",
    "generate_date_array": "array_length(generate_date_array(date '2000-01-01', date_add(date '2012-01-01', interval x day)))",
    "generate_timestamp_array": "array_length(generate_timestamp_array(timestamp '2020-01-01',"
    " timestamp_add(timestamp '2020-01-04', interval x second), interval 1 minute))",
}
# Expressions whose results are within the bound, alone and as arguments of other functions.
RESULTS_WITHIN_BOUND: Final = {
    "repeat": "length(repeat('a', 16370 + mod(x, 7)))",
    "lpad": "length(lpad('a', 16370 + mod(x, 7)))",
    "rpad": "length(rpad('a', 16370 + mod(x, 7), 'bc'))",
    "generate_array": "array_length(generate_array(1, 4090 + mod(x, 6)))",
    "initcap": "length(initcap(repeat('a,', 1021 + mod(x, 3))))",
    "to_code_points": "array_length(to_code_points(repeat('a,', 1021 + mod(x, 3))))",
    "reverse": "length(reverse(repeat('a,', 8180 + mod(x, 7))))",
    "reverse of wide characters": "length(reverse(repeat('ä,', 1021 + mod(x, 3))))",
    "to_hex": "length(to_hex(cast(repeat('a,', 8180 + mod(x, 7)) as bytes)))",
    "concat": "length(repeat('a,', 8180 + mod(x, 7)) || repeat('b', 16384))",
    "to_base64": "length(to_base64(cast(repeat('a,', 8180 + mod(x, 7)) as bytes)))",
    "translate": "length(translate(repeat('a,', 8180 + mod(x, 7)), 'a', 'b'))",
    "normalize": "length(normalize(repeat('ﷺ', 5450 + mod(x, 7)), nfc))",
    "to_json_string": "length(to_json_string([repeat('a,', 8180 + mod(x, 7))]))",
}

PROGRAM: Final = """
import os, sys, tempfile
from importlib import resources
from pathlib import Path
from cordwood.catalog.catalog import CatalogSources
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.file_catalog import read_catalog
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import Fault
from cordwood.sql.compile import parse_and_check_endpoint
from tests.attack.test_stopped import answer

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

engine = DuckDBEngine(Path(tempfile.mkdtemp()), DuckDBTarget(), DuckDBOptions(memory_bytes=96 * 2**20))
engine.create_stream_tables(read_catalog(CatalogSources(), lambda *_: None).streams)
file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
program = parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))
answer(engine, program, "select 1 as x")
before = peak()
try:
    answer(engine, program, sys.argv[1], seconds=15)
    said = "answered"
except Fault as fault:
    said = f"{fault.code} {fault.message}"
print(f"\\n{peak() - before} {said}", flush=True)
os._exit(0)
"""


def growth_and_outcome(expression: str) -> tuple[int, str]:
    """Compute an expression for 4,096 rows in a new process; return the growth of its memory, and the outcome."""
    sql = f"select sum({expression}) as n from unnest(generate_array(1, 4096)) as x"
    command = [sys.executable, "-c", PROGRAM, sql]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True, cwd=ROOT)
    growth, outcome = done.stdout.strip().splitlines()[-1].split(" ", 1)
    return int(growth), outcome


@pytest.mark.parametrize("name", RESULTS_BEYOND_BOUND)
def test_a_value_beyond_its_bound_is_refused_with_the_bound_in_the_message(name: str) -> None:
    grown, outcome = growth_and_outcome(RESULTS_BEYOND_BOUND[name])
    assert outcome.startswith("query.value ")
    assert any(bound in outcome for bound in ("16384", "4096", "2048"))
    assert grown < 50 * 10**6


@pytest.mark.parametrize("name", RESULTS_WITHIN_BOUND)
def test_values_within_their_bounds_take_bounded_memory_for_a_vector(name: str) -> None:
    grown, outcome = growth_and_outcome(RESULTS_WITHIN_BOUND[name])
    assert outcome.startswith(("answered", "limit.memory ", "limit.time "))
    assert grown < MAX_GROWTH_BYTES
