"""Compile targets by the name of their engine, for commands that compile without an engine."""

from collections.abc import Callable, Mapping
from typing import Final

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadSetting
from cordwood.sql.stages import Target

TARGETS: Final[Mapping[str, Callable[[], Target]]] = {"clickhouse": ClickHouseTarget, "duckdb": DuckDBTarget}

# The statements that define functions which a dialect calls. None are needed at present.
PRELUDES: Final[Mapping[str, str]] = {"clickhouse": "", "duckdb": ""}


def target_of(engine: str) -> Target:
    create_target = TARGETS.get(engine)
    if create_target is None:
        raise BadSetting(f"{engine!r} is no engine.", hint=f"There is: {', '.join(sorted(TARGETS))}.")
    return create_target()
