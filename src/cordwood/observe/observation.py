"""Every fact worth noting. The log writes each as a line; the metrics count what they know."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

Level = Literal["debug", "info", "warning", "error"]


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """The `event` of a log line is the tag; `level` decides whether the line is written."""

    usual_level: ClassVar[Level] = "info"
    level: Level | UnsetType = UNSET

    def told_level(self) -> Level:
        return self.usual_level if self.level is UNSET else self.level


class Requested(Observation, frozen=True, kw_only=True, tag="request"):
    """A request was answered; for a query this is the receipt too. `cache` is hit, miss, collapsed or stale."""

    request_id: str
    method: str
    route: str
    status: int
    seconds: float
    bytes: int = 0
    key: str = ""
    endpoint: str = ""
    stream: str = ""
    fault: str = ""
    cache: str = ""
    age_seconds: float = 0.0
    rows: int = 0
    truncated: str = ""
    compile_seconds: float = 0.0
    engine_seconds: float = 0.0
    revision: str = ""
    notices: tuple[str, ...] = ()


class EngineAsked(Observation, frozen=True, kw_only=True, tag="engine_query"):
    """The engine ran a question. `outcome` is ok or the code of the fault."""

    endpoint: str
    engine: str
    outcome: str
    seconds: float
    usual_level: ClassVar[Level] = "debug"


class Queued(Observation, frozen=True, kw_only=True, tag="queued"):
    """A run waited for a place; `outcome` is admitted, refused or abandoned. `places` are those of query or compile."""

    places: str
    lane: str
    outcome: str
    seconds: float
    usual_level: ClassVar[Level] = "debug"


class Refreshed(Observation, frozen=True, kw_only=True, tag="refresh"):
    """A kept answer was asked for again in the background."""

    endpoint: str
    outcome: str
    failures: int = 0
    usual_level: ClassVar[Level] = "debug"


class Ingested(Observation, frozen=True, kw_only=True, tag="ingest"):
    """Events arrived for a stream."""

    stream: str
    accepted: int
    duplicates: int = 0
    quarantined: int = 0
    late: int = 0
    future: int = 0
    # What the stream's transforms did: the transform, what became of events, and of how many.
    transformed: Sequence[tuple[str, str, int]] = ()
    usual_level: ClassVar[Level] = "debug"


class Broke(Observation, frozen=True, kw_only=True, tag="bug"):
    """A fault of ours: the incident is what the caller was told, the trace is for us."""

    incident: str
    trace: str
    usual_level: ClassVar[Level] = "error"


class IsolationRefused(Observation, frozen=True, kw_only=True, tag="isolation"):
    """A compiled statement would have read what it may not, and was not run. A text is logged once, and always counted."""

    incident: str
    engine: str
    breach: str
    sql: str
    usual_level: ClassVar[Level] = "error"


class EngineEnded(Observation, frozen=True, kw_only=True, tag="engine_ended"):
    """The engine's process ended and is replaced. `cause` is time, memory or died; `queries` were the cause."""

    cause: str
    reason: str = ""
    queries: int = 0
    usual_level: ClassVar[Level] = "warning"


class QueryQuarantined(Observation, frozen=True, kw_only=True, tag="query_quarantined"):
    """A caller's own query is refused for a while, because the engine's process was killed with it."""

    endpoint: str
    key: str
    fingerprint: str
    usual_level: ClassVar[Level] = "warning"


class QuarantineRefused(Observation, frozen=True, kw_only=True, tag="quarantine_refused"):
    """A query was refused that was killed before, or whose caller had others killed; `by` is query or key."""

    endpoint: str
    key: str
    by: str


class Audited(Observation, frozen=True, kw_only=True, tag="audit"):
    """Somebody was refused, or changed who may do what. Never holds a secret."""

    action: str
    key: str = ""
    subject: str = ""
    request_id: str = ""
    usual_level: ClassVar[Level] = "warning"


class Noted(Observation, frozen=True, kw_only=True, tag="notice"):
    """A sentence for the operator."""

    message: str
