"""Endpoints: saved queries with their settings and declared parameters."""

from enum import StrEnum
from uuid import UUID

import msgspec

from cordwood.model.alert import Alert
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
    alert: Alert | None = None
