"""The entry of a running query in the list that callers see."""

import time

import pytest

from cordwood.engines.engine import QueryProgress
from cordwood.model.key import Caller
from cordwood.serve.query_executor import RunningQuery
from cordwood.web.operations import running_query_json

CALLER = Caller("1", frozenset({"query"}))


@pytest.mark.parametrize(("has_rows", "rows"), [(True, (10, 20)), (False, (None, None))])
def test_numbers_of_rows_are_shown_only_to_callers_who_may_see_all_events(
    *, has_rows: bool, rows: tuple[int | None, int | None]
) -> None:
    query = RunningQuery("mine", "logs.all", CALLER, time.monotonic(), lambda: QueryProgress(0.123456, 10, 20))
    entry = running_query_json(query, has_rows=has_rows)
    assert (entry["id"], entry["endpoint"], entry["part"]) == ("mine", "logs.all", 0.1235)
    assert (entry["rows_read"], entry["rows_total"]) == rows
