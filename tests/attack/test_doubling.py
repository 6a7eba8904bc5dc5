"""No text doubles what it takes: each is answered or refused within seconds and memory that are bounded, by either engine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attack.doubling import LEVELS, texts
from tests.chdb_databases import IS_THERE, REASON

ROOT = Path(__file__).parents[2]
# Of processor time; compiling ends at two, and what was begun then is finished.
COMPILE_SECONDS = 4.0
PLAN_SECONDS = 4.0
MOST_BYTES = 400 * 2**20
# Of address space, so that what is missed ends the process instead of the machine. ClickHouse maps gigabytes idle.
ADDRESSES = {"duckdb": 4 * 2**30, "clickhouse": 12 * 2**30}
ALLOWED = {"answered", "limit.plan", "limit.compile", "limit.memory", "limit.time"}


@pytest.mark.parametrize("engine", ADDRESSES)
def test_no_construct_doubles_what_it_takes(engine: str) -> None:
    if engine == "clickhouse" and not IS_THERE:
        pytest.skip(REASON)
    found = {one["name"]: one for one in measured(engine)}
    assert not [one for one in found.values() if one["compile"] > COMPILE_SECONDS]
    assert not [one for one in found.values() if one["plan"] > PLAN_SECONDS]
    assert not [one for one in found.values() if one["bytes"] > MOST_BYTES]
    assert not [one for one in found.values() if not is_clean(one["code"])]
    assert len(found) == sum(len(list(texts(levels))) for levels in LEVELS)


def is_clean(code: str) -> bool:
    return code in ALLOWED or code.startswith("query.")


def measured(engine: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.attack.doubling", engine, str(ADDRESSES[engine])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-500:]
    return [json.loads(line) for line in done.stdout.splitlines()]
