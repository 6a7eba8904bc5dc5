"""The dialects there are, by the name of their engine, for whoever compiles without an engine."""

from collections.abc import Callable, Mapping
from typing import Final

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadSetting
from cordwood.sql.target import Target

TARGETS: Final[Mapping[str, Callable[[], Target]]] = {"clickhouse": ClickHouseTarget, "duckdb": DuckDBTarget}

# Statements that make what a dialect calls in its engine: none needs any yet.
PRELUDES: Final[Mapping[str, str]] = {"clickhouse": "", "duckdb": ""}


def target_of(engine: str) -> Target:
    made = TARGETS.get(engine)
    if made is None:
        raise BadSetting(f"{engine!r} is no engine.", hint=f"There is: {', '.join(sorted(TARGETS))}.")
    return made()
