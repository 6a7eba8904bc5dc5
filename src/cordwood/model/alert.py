"""Alerts: a query that is evaluated periodically, the condition over its rows, and the targets of notifications."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

# The maximum length of an alert's text, both as a template and as it is sent.
MAX_TEXT_CHARACTERS: Final = 500


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Measure(StrEnum):
    """The value that a condition compares: the number of rows, a column of each row, or a change of either."""

    ROWS = "rows"
    COLUMN = "column"
    CHANGE = "change"
    # The group had rows in the period before, and has none now.
    MISSING = "missing"


class Comparison(StrEnum):
    MORE = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    EQUAL = "=="
    UNEQUAL = "!="


class Condition(msgspec.Struct, frozen=True):
    """A condition over the rows of a group.

    `column` is empty if the number of rows is compared; `written` is the condition's text. With `is_percent`, a change
    is compared in percent of the value in the period before.
    """

    written: str
    measure: Measure
    column: str = ""
    comparison: Comparison = Comparison.MORE
    number: float = 0.0
    is_percent: bool = False


class Alert(msgspec.Struct, frozen=True):
    """An alert. `text` may contain `{column}`, which is replaced by the value in the row.

    `parameters` are those of the query; `now` and `now-5m` in a time are relative to the evaluation. `sandbox` is the
    language and text of the alert's own query over the endpoint's sub-queries. `before_seconds` is the distance to the
    earlier period with which a change is compared. `repeat_seconds` is the interval at which the notification of a
    firing alert is repeated.
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
