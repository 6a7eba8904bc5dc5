"""The definitions of endpoints, alerts and streams, as they are stated in files or sent by management clients."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from cordwood.model.datatype import Kind


class TextParameterKind(StrEnum):
    """The interpretation of a text parameter: as plain text or as a regular expression."""

    PLAIN = "plain"
    REGEX = "regex"


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: Kind = Kind.STRING
    kind: TextParameterKind = TextParameterKind.PLAIN
    required: bool = False
    default: str | None = None
    one_of: tuple[str, ...] = ()
    description: str = ""
    example: str | None = None


class Dialect(StrEnum):
    """The SQL dialect of an endpoint's queries."""

    BIGQUERY = "bigquery"
    CLICKHOUSE = "clickhouse"


class StreamProjectPath(msgspec.Struct, frozen=True):
    """A stream, and the path inside metadata of its events' project; empty for the top-level field `project`."""

    name: str
    project_at: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True):
    """A saved query. `revision` is a digest of the whole file, so that every change invalidates the cache.

    `text_before_query` is the text of the file before the query, and `query_first_line` the line on which `sql` begins. `time_zone` is the time
    zone of LQL's relative dates, such as `t:today`. `dialect` is the SQL dialect of the endpoint's own query and of
    callers' queries. `streams` are all streams of the catalog; they are set only if `dialect` is ClickHouse, because a
    sub-query in that dialect may stand for all streams that no other sub-query reads. `included` are the endpoints that
    the query reads by name; `parameters` has their parameters as well, and `revision` depends on their revisions.
    `alert` is the alert that is defined in the file.
    """

    name: str
    id: UUID
    sql: str
    revision: str
    file: str = ""
    text_before_query: str = ""
    query_first_line: int = 1
    description: str = ""
    max_rows: int = 1000
    cache_seconds: float = 0.0
    warm_seconds: float | None = None
    timeout_seconds: float | None = None
    sandbox: bool = False
    redact_pii: bool = False
    redact_mode: str = "replace"
    auth: bool = True
    time_zone: str = "UTC"
    parameters: tuple[Parameter, ...] = ()
    dialect: Dialect = Dialect.BIGQUERY
    streams: tuple[StreamProjectPath, ...] = ()
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
    """The value that a condition compares: the number of rows, a column of each row, or the change of one of these."""

    ROWS = "rows"
    COLUMN = "column"
    CHANGE = "change"
    # Compares no value: the condition is met if the group had rows in the period before, and has none now.
    MISSING = "missing"


class Comparison(StrEnum):
    GREATER_THAN = ">"
    AT_LEAST = ">="
    LESS_THAN = "<"
    AT_MOST = "<="
    EQUAL = "=="
    NOT_EQUAL = "!="


class Condition(msgspec.Struct, frozen=True):
    """The condition of an alert over the rows of a group.

    `text` is the condition as its author wrote it. `column` is empty if the number of rows is compared. With
    `is_percent`, a change is compared as a percentage of the value in the period before.
    """

    text: str
    measure: Measure
    column: str = ""
    comparison: Comparison = Comparison.GREATER_THAN
    threshold: float = 0.0
    is_percent: bool = False


class Alert(msgspec.Struct, frozen=True):
    """A periodic evaluation of an endpoint: its condition, and the targets that are notified.

    `text` is the text of notifications. In it, the name of a column in braces, such as `{path}`, is replaced by the
    column's value in the row that meets the condition, or else in the group's first row. `parameters` are the query's
    parameters; in times, `now` and `now-5m` are relative to the time of the evaluation. If the alert does not evaluate
    the endpoint's query but a query of its own over the endpoint's sub-queries, `sandbox` is the language and the text
    of this query. If the condition compares two periods, the query is also run for the period that is `before_seconds`
    earlier. `repeat_seconds` is the interval at which the notification of a firing alert is repeated.
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


# The steps of the path to a field, such as ("metadata", "user", "id"), or a single top-level name.
FieldPath = tuple[str, ...]


class TransformAction(StrEnum):
    """The kind of a transform."""

    DROP = "drop"
    SAMPLE = "sample"
    REMOVE = "remove"
    HASH = "hash"
    COPY = "copy"
    RENAME = "rename"
    MESSAGE = "message"
    ENRICH = "enrich"


class Transform(msgspec.Struct, frozen=True):
    """A change to the events that match the LQL filter `where`, or to all events if `where` is empty.

    `fields` are the fields to remove or hash; `moves` are pairs of source and target fields to copy, rename or enrich.
    For `enrich`, `entries` maps each value of the source field to the JSON text to put into the target field.
    """

    action: TransformAction
    where: str = ""
    rate: float = 1.0
    fields: tuple[FieldPath, ...] = ()
    moves: tuple[tuple[FieldPath, FieldPath], ...] = ()
    template: str = ""
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)


class ClockPolicy(StrEnum):
    """The treatment of an event whose time is too far in the past (*late*) or in the future."""

    ACCEPT = "accept"
    CLAMP = "clamp"
    QUARANTINE = "quarantine"


class Stream(msgspec.Struct, frozen=True):
    """A stream: its name and the settings for its events.

    `derive_templates` maps a dotted path to a template, which fills the path in events that lack it. `project_at` is the path
    inside metadata at which queries find an event's project; it is empty if they use the top-level field `project`.
    """

    name: str
    id: UUID
    retention_seconds: float | None = None
    derive_templates: Mapping[str, str] = msgspec.field(default_factory=dict)
    late_policy: ClockPolicy = ClockPolicy.ACCEPT
    late_seconds: float | None = None
    future_policy: ClockPolicy = ClockPolicy.ACCEPT
    future_seconds: float | None = None
    max_events: int | None = None
    events_per_second: float | None = None
    project_at: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()
    description: str = ""

    @property
    def late_after_seconds(self) -> float | None:
        """The age in seconds at which an event is late: the configured age, or the retention if that is shorter."""
        bounds = (self.late_seconds, self.retention_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)
