"""Queries that could grow exponentially with their nesting are answered or refused within bounded time and memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attack.doubling import NESTING_LEVELS, construct_queries_for
from tests.chdb_databases import IS_INSTALLED, SKIP_REASON
from tests.machine_speed import scaled

ROOT = Path(__file__).parents[2]
# The maximum CPU time of a compilation. The compiler's limit is two seconds, and then it finishes the current step.
COMPILE_SECONDS = 4.0
PLAN_SECONDS = 4.0
MAX_GROWTH_BYTES = 400 * 2**20
# Limits of the address space, which protect the machine. ClickHouse reserves gigabytes without using them.
ADDRESS_SPACE_BYTES = {"duckdb": 4 * 2**30, "clickhouse": 12 * 2**30}
ALLOWED_OUTCOMES = {"answered", "limit.plan", "limit.compile", "limit.memory", "limit.time"}


@pytest.mark.torture
@pytest.mark.parametrize("engine", ADDRESS_SPACE_BYTES)
def test_no_nested_construct_exceeds_the_limits(engine: str) -> None:
    if engine == "clickhouse" and not IS_INSTALLED:
        pytest.skip(SKIP_REASON)
    measurements = {measured["name"]: measured for measured in measure(engine)}
    compile_limit, plan_limit = scaled(COMPILE_SECONDS), scaled(PLAN_SECONDS)
    assert not [measured for measured in measurements.values() if measured["compile"] > compile_limit]
    assert not [measured for measured in measurements.values() if measured["plan"] > plan_limit]
    assert not [measured for measured in measurements.values() if measured["bytes"] > MAX_GROWTH_BYTES]
    assert not [measured for measured in measurements.values() if not is_bounded(measured["code"])]
    assert len(measurements) == sum(len(list(construct_queries_for(engine, levels))) for levels in NESTING_LEVELS)


def is_bounded(code: str) -> bool:
    return code in ALLOWED_OUTCOMES or code.startswith("query.")


def measure(engine: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.attack.doubling", engine, str(ADDRESS_SPACE_BYTES[engine])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-500:]
    return [json.loads(line) for line in done.stdout.splitlines()]
