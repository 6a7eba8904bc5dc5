"""Alerts: a query that is evaluated periodically, the condition over its rows, and where changes are sent."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

# The most characters of the text of an alert, both as a template and as it is sent.
MAX_TEXT: Final = 500


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Measure(StrEnum):
    """What a condition compares: the number of rows, a column of each row, or the change of either since a period before."""

    ROWS = "rows"
    COLUMN = "column"
    CHANGE = "change"
    # The group had rows before, and has none now.
    MISSING = "missing"


class Comparison(StrEnum):
    MORE = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    EQUAL = "=="
    UNEQUAL = "!="


class Condition(msgspec.Struct, frozen=True):
    """A condition over the rows of a group. `column` is empty for the number of rows, `written` is its text.

    `is_percent`: a change is compared in percent of the value of the period before.
    """

    written: str
    measure: Measure
    column: str = ""
    comparison: Comparison = Comparison.MORE
    number: float = 0.0
    is_percent: bool = False


class Alert(msgspec.Struct, frozen=True):
    """An alert. `text` may contain `{column}`, which is replaced by the value of the row.

    `parameters` are those of the query; `now` and `now-5m` in a time are relative to the evaluation. `sandbox` is the
    language and text of an own query over the endpoint's sub-queries. `before_seconds` is how long before the period
    lies with which a change is compared. `repeat_seconds` is how often a firing alert is sent again.
    """

    name: str
    id: UUID
    endpoint: str
    condition: Condition
    every_seconds: float
    revision: str
    file: str = ""
    line: int = 1
    for_seconds: float = 0.0
    before_seconds: float | None = None
    repeat_seconds: float | None = None
    group_by: tuple[str, ...] = ()
    severity: Severity = Severity.WARNING
    text: str = ""
    send_to: tuple[str, ...] = ()
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    sandbox: tuple[str, str] | None = None
    redact: bool | None = None
