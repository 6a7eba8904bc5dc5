"""The definitions of endpoints, alerts and streams, which come from files or from clients that change them by HTTP."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from cordwood.model.datatype import Kind


class TextParameterKind(StrEnum):
    """The meaning of a text parameter: plain text or a regular expression."""

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
    """The SQL dialect in which an endpoint's own query and its callers' queries are written."""

    BIGQUERY = "bigquery"
    CLICKHOUSE = "clickhouse"


class StreamProjectPath(msgspec.Struct, frozen=True):
    """The name of a stream, and the path inside metadata at which its events state their project.

    The path is empty if the events have the top-level field `project`.
    """

    stream_name: str
    project_at: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True):
    """A saved query with its settings.

    `revision` is a digest of the whole file and of the revisions of `included_endpoints`, so that every change
    invalidates the cache. `text_before_query` is the text of the file before the query; `query_first_line` is the line
    on which the query `sql` begins. `time_zone` is the time zone of LQL's relative dates, such as `t:today`, and of the
    time buckets of LQL's charts. `dialect` applies to the endpoint's own query and to callers' queries.
    `included_endpoints` are the endpoints that the query reads by name; their parameters are also in `parameters`.

    `streams` are all streams of the catalog. They are set only if `dialect` is ClickHouse, because a sub-query in that
    dialect may stand for all streams that no other sub-query reads.
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
    accepts_sandbox_queries: bool = False
    redact_pii: bool = False
    redact_mode: str = "replace"
    requires_key: bool = True
    time_zone: str = "UTC"
    parameters: tuple[Parameter, ...] = ()
    dialect: Dialect = Dialect.BIGQUERY
    streams: tuple[StreamProjectPath, ...] = ()
    included_endpoints: "tuple[Endpoint, ...]" = ()
    alert: "Alert | None" = None


# The maximum length of an alert's text, both before and after placeholders are replaced.
MAX_ALERT_TEXT_CHARACTERS: Final = 500


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ComparedValue(StrEnum):
    """The value that a condition compares: the number of rows, a column of each row, or the change of either."""

    ROWS = "rows"
    COLUMN = "column"
    CHANGE = "change"
    # Compares no value. The condition is met if the group had rows at an earlier evaluation and has none now.
    MISSING_ROWS = "missing"


class Comparison(StrEnum):
    GREATER_THAN = ">"
    AT_LEAST = ">="
    LESS_THAN = "<"
    AT_MOST = "<="
    EQUAL = "=="
    NOT_EQUAL = "!="


class AlertCondition(msgspec.Struct, frozen=True):
    """The condition of an alert, which is evaluated for each group of rows.

    `written_text` is the condition as its author wrote it. `column` is empty if the number of rows is compared. If
    `is_percent` is set, a change is compared as a percentage of the earlier value.
    """

    written_text: str
    compared_value: ComparedValue
    column: str = ""
    comparison: Comparison = Comparison.GREATER_THAN
    threshold: float = 0.0
    is_percent: bool = False


class Alert(msgspec.Struct, frozen=True):
    """A query over an endpoint that is evaluated periodically, with a condition and the targets to notify if it is met.

    `notification_text` is the text of notifications. In it, a column's name in braces, such as `{path}`, is replaced by
    the column's value in the row that meets the condition, or else in the group's first row. `parameters` are the
    query's parameters; in times, `now` and `now-5m` are relative to the time of the evaluation.

    If the alert has a query of its own over the endpoint's sub-queries, `sandbox_language_and_text` is the language and
    the text of this query; otherwise, the endpoint's query is evaluated. If the condition compares the values of two
    periods, the query also runs for the period `before_seconds` earlier. The notification of a firing alert is repeated
    every `repeat_seconds`.
    """

    name: str
    id: UUID
    endpoint_name: str
    condition: AlertCondition
    every_seconds: float
    revision: str
    file: str = ""
    line: int = 1
    for_seconds: float = 0.0
    before_seconds: float | None = None
    repeat_seconds: float | None = None
    group_by: tuple[str, ...] = ()
    severity: Severity = Severity.WARNING
    notification_text: str = ""
    send_to: tuple[str, ...] = ()
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    sandbox_language_and_text: tuple[str, str] | None = None
    redact: bool | None = None


# The path of a field: keys such as ("metadata", "user", "id"), or a single top-level key.
FieldPath = tuple[str, ...]


class TransformAction(StrEnum):
    """The action of a transform, such as removing or copying fields."""

    DROP_EVENT = "drop"
    SAMPLE = "sample"
    REMOVE_FIELDS = "remove"
    HASH = "hash"
    COPY = "copy"
    RENAME = "rename"
    SET_MESSAGE = "message"
    ENRICH = "enrich"


class Transform(msgspec.Struct, frozen=True):
    """A change to the events that match the LQL filter `lql_filter`, or to all events if `lql_filter` is empty.

    `removed_or_hashed_fields` are the fields that are removed or hashed. `source_and_target_fields` are pairs of a
    source field and a target field, which are copied, renamed or enriched. For `enrich`, `target_json_by_source_value`
    maps a value of the source field to the JSON text that is put into the target field.
    """

    action: TransformAction
    lql_filter: str = ""
    sampled_fraction: float = 1.0
    removed_or_hashed_fields: tuple[FieldPath, ...] = ()
    source_and_target_fields: tuple[tuple[FieldPath, FieldPath], ...] = ()
    message_template: str = ""
    target_json_by_source_value: Mapping[str, str] = msgspec.field(default_factory=dict)


class EventTimePolicy(StrEnum):
    """The action for an event whose time is too far in the past (a *late* event) or in the future."""

    ACCEPT = "accept"
    CLAMP = "clamp"
    QUARANTINE = "quarantine"


class Stream(msgspec.Struct, frozen=True):
    """The name of a stream and the settings for its events.

    `derive_templates` maps a dotted path to a template. In an event that has no value at the path, the filled template
    becomes the value. `project_at` is the path inside metadata at which queries find an event's project; it is empty if
    they use the top-level field `project`.
    """

    name: str
    id: UUID
    retention_seconds: float | None = None
    derive_templates: Mapping[str, str] = msgspec.field(default_factory=dict)
    late_policy: EventTimePolicy = EventTimePolicy.ACCEPT
    late_seconds: float | None = None
    future_policy: EventTimePolicy = EventTimePolicy.ACCEPT
    future_seconds: float | None = None
    max_events: int | None = None
    events_per_second: float | None = None
    project_at: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()
    description: str = ""

    @property
    def late_after_seconds(self) -> float | None:
        """The age at which an event is late: `late_seconds` or `retention_seconds`, whichever is shorter.

        One that is not set is ignored. If neither is set, the age is None, and no event is late.
        """
        bounds = (self.late_seconds, self.retention_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)
