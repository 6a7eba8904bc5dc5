"""The [alert] table of endpoint files, and alert files: parsing, and errors with their position."""

import pytest

from cordwood.catalog.alert_table import alert_to_toml_table, read_alert_file
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.errors import BadEndpointFile
from cordwood.model.definitions import AlertCondition, ComparedValue, Comparison, Severity

ALL_SETTINGS = """
name = "slow"
[alert]
name = "too slow"
every = "1m"
for = "5m"
condition = "change(`p95 ms`) >= 50%"
before = "1d"
repeat = "4h"
group_by = ["path", "project"]
severity = "critical"
text = "{path} is slow"
send_to = ["ops"]
parameters = {project = "p", least = 5, all = true, since = "now-5m", day = 2024-05-15}
sql = "select 1"
redact = true
"""


def endpoint_text(settings: str) -> str:
    return f"/*{settings}*/\nselect 1 as n"


def test_every_setting_of_an_alert_is_read() -> None:
    alert = read_endpoint_file("a.sql", endpoint_text(ALL_SETTINGS)).alert
    assert alert is not None
    assert (alert.name, alert.endpoint_name, alert.file, alert.line) == ("too slow", "slow", "a.sql", 3)
    assert alert.condition == AlertCondition(
        "change(`p95 ms`) >= 50%", ComparedValue.CHANGE, "p95 ms", Comparison.AT_LEAST, 50.0, is_percent=True
    )
    assert (alert.every_seconds, alert.for_seconds, alert.before_seconds, alert.repeat_seconds) == (
        60.0, 300.0, 86_400.0, 14_400.0,
    )  # fmt: skip
    assert (alert.group_by, alert.severity, alert.send_to) == (("path", "project"), Severity.CRITICAL, ("ops",))
    assert alert.parameters == {
        "project": "p", "least": "5", "all": "true", "since": "now-5m", "day": "2024-05-15",
    }  # fmt: skip
    assert (alert.sandbox_language_and_text, alert.redact) == (("sql", "select 1"), True)


def test_table_of_alert_returns_the_table_that_the_alert_was_read_from() -> None:
    alert = read_endpoint_file("a.sql", endpoint_text(ALL_SETTINGS)).alert
    assert alert is not None
    assert alert_to_toml_table(alert) == {
        "name": "too slow", "every": "1m", "for": "5m", "condition": "change(`p95 ms`) >= 50%", "before": "1d",
        "repeat": "4h", "group_by": ["path", "project"], "severity": "critical", "text": "{path} is slow",
        "send_to": ["ops"], "sql": "select 1", "redact": True,
        "parameters": {"project": "p", "least": "5", "all": "true", "since": "now-5m", "day": "2024-05-15"},
    }  # fmt: skip


def test_an_alert_is_optional_and_an_alert_file_names_its_alert() -> None:
    assert read_endpoint_file("a.sql", endpoint_text('name = "a"')).alert is None
    alert = read_alert_file("/q/quiet.alert.toml", 'endpoint = "logs.all"\nevery = "1m"\ncondition = "missing"\n')
    assert (alert.name, alert.endpoint_name, alert.severity, alert.for_seconds) == (
        "quiet", "logs.all", Severity.WARNING, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("invalid_setting", "line", "message"),
    [
        ('every = "1m"', 2, "has no condition"),
        ('condition = "rows"', 2, "does not say how often"),
        ('every = "1m"\ncondition = "rows >"', 4, "'rows >' is not a condition"),
        ('every = "0.5s"\ncondition = "rows"', 3, "every must be at least 1 s"),
        ('every = "soon"\ncondition = "rows"', 3, "every: 'soon' is not a duration"),
        ('every = 60\ncondition = "rows"', 3, "every must be a text in quotes"),
        ('every = "1m"\ncondition = "rows"\nfor = "400d"', 5, "for must be at most a year"),
        ('every = "1m"\ncondition = "rows"\nrepeat = "0"', 5, "repeat must be at least 1 s"),
        ('every = "1m"\ncondition = "change(rows) > 1"', 4, "needs `before`"),
        ('every = "1m"\ncondition = "rows"\nbefore = "1h"', 5, "has a use for `before`"),
        ('every = "1m"\ncondition = "rows"\nseverity = "bad"', 5, "'bad' is not a severity"),
        ('every = "1m"\ncondition = "rows"\ngroup_by = "a"', 5, "group_by must be a list of texts"),
        ('every = "1m"\ncondition = "rows"\nsend_to = ["a", "a"]', 5, "send_to has a name twice"),
        ('every = "1m"\ncondition = "rows"\nsql = "a"\nlql = "b"', 6, "either sql or lql"),
        ('every = "1m"\ncondition = "rows"\nparameters = {a = [1]}', 5, "must be a text, a number or a time"),
        ('every = "1m"\ncondition = "rows"\nname = "a/b"', 5, "cannot be the name of an alert"),
        ('every = "1m"\ncondition = "rows"\nevry = "1m"', 5, "evry is not a setting here"),
        ('every = "1m"\ncondition = "rows"\nendpoint = "b"', 5, "endpoint is not a setting here"),
        ('every = "1m"\ncondition = "rows"\ntext = "' + "x" * 501 + '"', 5, "more than 500 characters"),
        (
            'every = "1m"\ncondition = "rows"\ngroup_by = [' + ",".join(f'"{n}"' for n in range(17)) + "]",
            5,
            "more than 16",
        ),
    ],
)
def test_errors_have_the_line_of_the_setting(invalid_setting: str, line: int, message: str) -> None:
    with pytest.raises(BadEndpointFile, match=message) as caught:
        read_endpoint_file("a.sql", endpoint_text(f'name = "a"\n[alert]\n{invalid_setting}\n'))
    assert caught.value.span is not None
    assert (caught.value.span.file, caught.value.span.line) == ("a.sql", line)


def test_an_alert_needs_a_table_and_an_alert_file_an_endpoint() -> None:
    with pytest.raises(BadEndpointFile, match="alert must be a table"):
        read_endpoint_file("a.sql", endpoint_text('name = "a"\nalert = "rows"\n'))
    with pytest.raises(BadEndpointFile, match="names no endpoint"):
        read_alert_file("a.alert.toml", 'every = "1m"\ncondition = "rows"')
