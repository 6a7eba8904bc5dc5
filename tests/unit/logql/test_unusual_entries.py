"""Entries with empty, missing or unusual values: the conditions of a query and the labels of its answer agree."""

import math
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cordwood.logql.syntax import LogqlRequest, ResultKind
from tests.spec_runner.world import ENGINES
from tests.unit.logql.conftest import LogqlEngine, open_logql_engine
from tests.unit.logql.entries import END_US, SECOND_US, START_US

# The events by a short name, which is also the event's field `name`: the line, and the other fields of the metadata.
_EVENTS: Final[dict[str, tuple[str | None, dict[str, Any]]]] = {
    "nan": ("a number", {"n": "NaN"}),
    "three": ("a number", {"n": "3"}),
    "seven": ("a number", {"n": "7"}),
}
_ENDPOINT_SQL: Final = """
with odd_logs as (select t.id, t.timestamp, t.event_message, t.metadata from `odd` as t) select * from odd_logs
"""


@pytest.fixture(scope="module", params=ENGINES, ids=lambda kind: kind.name)
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogqlEngine]:
    events = [
        {
            "id": name,
            "timestamp": START_US + number * SECOND_US,
            "event_message": line,
            "metadata": {"name": name, **metadata},
        }
        for number, (name, (line, metadata)) in enumerate(_EVENTS.items())
    ]
    opened = open_logql_engine(request.param, tmp_path_factory.mktemp("odd"), {"odd": events}, _ENDPOINT_SQL)
    yield opened
    opened.engine.close()


def names_found(odd: LogqlEngine, query: str) -> set[str]:
    """Return the names of the events that a log query finds."""
    columns, rows = odd.rows(LogqlRequest(ResultKind.ENTRIES, (query,), START_US, END_US))
    metadata = [row[columns.index("metadata")] for row in rows]
    return {(one[0] if isinstance(one, list) else one)["name"] for one in metadata}  # type: ignore[index, call-overload]


def test_nan_in_a_field_is_neither_greater_than_a_number_nor_the_maximum(odd: LogqlEngine) -> None:
    assert names_found(odd, "{} | n > 1") == {"three", "seven"}
    assert names_found(odd, "{} | n >= 7") == {"seven"}
    assert names_found(odd, "{} | n != 3") == {"nan", "seven"}
    assert odd.sample("max_over_time({} | unwrap n [1h]) by ()") == 7
    assert odd.sample("min_over_time({} | unwrap n [1h]) by ()") == 3
    assert math.isnan(odd.sample('max_over_time({} | name="nan" | unwrap n [1h]) by ()'))
