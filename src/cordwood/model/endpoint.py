"""Endpoints: saved queries with their settings, declared parameters and alerts."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from cordwood.model.datatype import Kind


class TextKind(StrEnum):
    """The interpretation of a text parameter: as plain text or as a regular expression."""

    PLAIN = "plain"
    REGEX = "regex"


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: Kind = Kind.STRING
    kind: TextKind = TextKind.PLAIN
    required: bool = False
    default: str | None = None
    one_of: tuple[str, ...] = ()
    description: str = ""
    example: str | None = None


class Dialect(StrEnum):
    """The SQL dialect of an endpoint's queries."""

    BIGQUERY = "bigquery"
    CLICKHOUSE = "clickhouse"


class StreamProject(msgspec.Struct, frozen=True):
    """A stream, and the path inside metadata to the project of its events; empty for a top-level `project`."""

    name: str
    project_at: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True):
    """A saved query. `revision` is a digest of the whole file, so that every change invalidates the cache.

    `head` is the text of the file before the query, and `body_line` the line on which `sql` begins. `zone` is the time
    zone of LQL's relative dates, such as `t:today`. `dialect` is the SQL dialect of the endpoint's own query and of
    callers' queries. `streams` are those of the catalog, for a sub-query that stands for every stream that no other
    sub-query reads. `included` are the endpoints that the query reads by name; `parameters` and `revision` cover these,
    too. `alert` is the alert defined in the file.
    """

    name: str
    id: UUID
    sql: str
    revision: str
    file: str = ""
    head: str = ""
    body_line: int = 1
    description: str = ""
    max_rows: int = 1000
    cache_seconds: float = 0.0
    warm_seconds: float | None = None
    timeout_seconds: float | None = None
    sandbox: bool = False
    redact_pii: bool = False
    redact_mode: str = "replace"
    auth: bool = True
    zone: str = "UTC"
    parameters: tuple[Parameter, ...] = ()
    dialect: Dialect = Dialect.BIGQUERY
    streams: tuple[StreamProject, ...] = ()
    included: "tuple[Endpoint, ...]" = ()
    alert: "Alert | None" = None


# The maximum length of an alert's text, both as a template and as it is sent.
MAX_ALERT_TEXT_CHARACTERS: Final = 500


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Measure(StrEnum):
    """The value that an alert's condition compares: the number of rows, a column of each row, or a change of either."""

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
    """The condition of an alert over the rows of a group.

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
    """A periodic evaluation of an endpoint: its condition, and the targets that are notified.

    `text` may contain `{column}`, which is replaced by the value in the row. `parameters` are those of the query; `now`
    and `now-5m` in a time are relative to the evaluation. `sandbox` is the language and text of the alert's own query
    over the endpoint's sub-queries. `before_seconds` is the distance to the earlier period with which a change is
    compared. `repeat_seconds` is the interval at which the notification of a firing alert is repeated.
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
