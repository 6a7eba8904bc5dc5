"""The check of an alert against its endpoint: query, columns and parameters."""

from typing import Any
from uuid import UUID

import pytest

from cordwood.alerts.evaluation import check_alert, resolve_relative_times
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadEndpointFile
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter
from tests.unit.alerts.harness import START_US, make_alert

PARAMETERS = (
    Parameter("project", required=True),
    Parameter("since", Kind.TIMESTAMP),
    Parameter("least", Kind.INT64),
)
ENDPOINT = Endpoint(
    "errors",
    UUID(int=1),
    """with logs as (select t.project, t.event_message, t.metadata from `postgres.logs` as t
       where t.project = @project and (@since is null or t.timestamp > @since) and @least > 0)
       select project, count(*) as n from logs group by project""",
    "1",
    accepts_sandbox_queries=True,
    parameters=PARAMETERS,
)
QUERY_PARAMETERS: dict[str, Any] = {"parameters": {"project": "p", "since": "now-5m"}}


@pytest.mark.parametrize(
    "definition",
    [
        make_alert("n > 1", group_by=("project",), notification_text="{project}: {n} ({value})", **QUERY_PARAMETERS),
        make_alert(
            "hits > 1", sandbox_language_and_text=("sql", "select count(*) as hits from logs"), **QUERY_PARAMETERS
        ),
        make_alert("rows", sandbox_language_and_text=("lql", "m.level:error"), **QUERY_PARAMETERS),
        # The columns of `SELECT *` depend on the events, so the check accepts any column name.
        make_alert("whatever > 1", sandbox_language_and_text=("sql", "select * from logs"), **QUERY_PARAMETERS),
    ],
)
def test_valid_alerts_pass(definition: Any) -> None:
    check_alert(definition, ENDPOINT, DuckDBTarget())


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (make_alert("m > 1", **QUERY_PARAMETERS), "the answer has no column m"),
        (make_alert("change(m) > 1", before_seconds=1.0, **QUERY_PARAMETERS), "the answer has no column m"),
        (make_alert("rows", group_by=("projects",), **QUERY_PARAMETERS), "no column projects. Did you mean project?"),
        (make_alert("rows", notification_text="{gone}", **QUERY_PARAMETERS), "the answer has no column gone"),
        (make_alert("rows", notification_text="{n", **QUERY_PARAMETERS), "the brace at character 1 has no other"),
        (make_alert("rows", notification_text="a {} b", **QUERY_PARAMETERS), "name no column"),
        (make_alert("rows"), "The parameter project is required"),
        (make_alert("rows", parameters={"projct": "p"}), "errors has no parameter projct. Did you mean project?"),
        (make_alert("rows", parameters={"project": "p", "since": "now-soon"}), 'The parameter since is "now-soon"'),
        (make_alert("rows", parameters={"project": "p", "least": "few"}), 'The parameter least is "few"'),
        (make_alert("rows", sandbox_language_and_text=("sql", "select x from logs"), **QUERY_PARAMETERS), "sql at 1:8"),
        (
            make_alert("rows", sandbox_language_and_text=("sql", "select n from other"), **QUERY_PARAMETERS),
            "sql at 1:15",
        ),
        (make_alert("rows", sandbox_language_and_text=("lql", "m.a:>"), **QUERY_PARAMETERS), "lql at 1:"),
    ],
)
def test_invalid_alerts_are_refused_with_the_reason(definition: Any, message: str) -> None:
    with pytest.raises(BadEndpointFile) as caught:
        check_alert(definition, ENDPOINT, DuckDBTarget())
    assert message in caught.value.one_line_text()
    assert "The alert a" in caught.value.one_line_text()


def test_relative_times_are_resolved_to_the_type_of_their_parameter() -> None:
    kinds = {"t": Kind.TIMESTAMP, "d": Kind.DATE, "dt": Kind.DATETIME, "s": Kind.STRING}
    parameters = [Parameter(name, kind) for name, kind in kinds.items()]
    resolved = resolve_relative_times(dict.fromkeys(kinds, "now-1d2h"), parameters, START_US)
    assert resolved == {
        "t": "2023-11-13T20:13:20+00:00", "d": "2023-11-13", "dt": "2023-11-13T20:13:20", "s": "now-1d2h",
    }  # fmt: skip
    assert resolve_relative_times({"t": "now"}, parameters, START_US) == {"t": "2023-11-14T22:13:20+00:00"}
    for text in ("now+1h", "now-", "now-5", "then", "now-1h1", "now-999999999999d"):
        assert resolve_relative_times({"t": text}, parameters, START_US) == {"t": text}
