"""Observations (facts about what the service did), the observer that passes them on, and the log as JSON lines."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import BinaryIO, ClassVar, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

LogLevel = Literal["debug", "info", "warning", "error"]


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """The base class of observations. An observation is also a line of the log.

    In this line, `event` is the tag of the class. `level` is the severity of this observation; if it is not set, the
    `default_level` of the class applies.
    """

    default_level: ClassVar[LogLevel] = "info"
    level: LogLevel | UnsetType = UNSET

    def effective_level(self) -> LogLevel:
        return self.default_level if self.level is UNSET else self.level


class RequestAnswered(Observation, frozen=True, kw_only=True, tag="request"):
    """A request was answered.

    For a query, the observation has the fields of the answer's receipt. In particular, `cache` tells whether the answer
    came from the cache.
    """

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


class EngineQueried(Observation, frozen=True, kw_only=True, tag="engine_query"):
    """The engine ran a query. `outcome` is `ok` or the code of the error."""

    endpoint: str
    engine: str
    outcome: str
    seconds: float
    default_level: ClassVar[LogLevel] = "debug"


class PartialAnswersUsed(Observation, frozen=True, kw_only=True, tag="partial_answers"):
    """The run of a query used partial answers.

    `outcome` is `reused`, `computed` (partial answers that were missing were computed in this run), or `failed`.
    """

    outcome: str
    default_level: ClassVar[LogLevel] = "debug"


class AdmissionAwaited(Observation, frozen=True, kw_only=True, tag="queued"):
    """A query waited for an admission slot; `outcome` is `admitted`, `refused` or `abandoned`.

    `places` is the kind of slot: `query` (to run in the engine) or `compile`.
    """

    places: str
    lane: str
    outcome: str
    seconds: float
    default_level: ClassVar[LogLevel] = "debug"


class CachedAnswerRefreshed(Observation, frozen=True, kw_only=True, tag="refresh"):
    """A refresh of a cached answer in the background has ended. `outcome` is `ok` or the code of the error."""

    endpoint: str
    outcome: str
    failures: int = 0
    default_level: ClassVar[LogLevel] = "debug"


class EventsIngested(Observation, frozen=True, kw_only=True, tag="ingest"):
    """Events arrived for a stream."""

    stream: str
    accepted: int
    duplicates: int = 0
    quarantined: int = 0
    late: int = 0
    future: int = 0
    # For each transform and outcome: the name of the transform, the outcome, and the number of events.
    transformed: Sequence[tuple[str, str, int]] = ()
    default_level: ClassVar[LogLevel] = "debug"


class ListenerOutcomeCounted(Observation, frozen=True, kw_only=True, tag="listener"):
    """A listener other than HTTP handled `count` messages or connections, each with the outcome `outcome`."""

    listener: str
    outcome: str
    count: int
    default_level: ClassVar[LogLevel] = "debug"


class AlertEvaluated(Observation, frozen=True, kw_only=True, tag="alert_evaluated"):
    """An alert was evaluated. `outcome` is `ok` or `error`."""

    alert: str
    outcome: str
    message: str = ""
    default_level: ClassVar[LogLevel] = "debug"


class AlertSent(Observation, frozen=True, kw_only=True, tag="alert_sent"):
    """An attempt to send an alert's notification has ended. `outcome` is `sent`, `failed` or `given_up`."""

    alert: str
    target: str
    outcome: str
    changes: int
    reason: str = ""


class BugFound(Observation, frozen=True, kw_only=True, tag="bug"):
    """An internal error occurred. `incident` is the id that was shown to the caller."""

    incident: str
    trace: str
    default_level: ClassVar[LogLevel] = "error"


class IsolationBreachRefused(Observation, frozen=True, kw_only=True, tag="isolation"):
    """The isolation check, which guards the data of other projects, refused a compiled statement.

    The text of a refused statement is logged only once. The metrics count every refusal.
    """

    incident: str
    engine: str
    breach: str
    sql: str
    default_level: ClassVar[LogLevel] = "error"


class EngineEnded(Observation, frozen=True, kw_only=True, tag="engine_ended"):
    """The engine's process has ended and is replaced.

    `cause` is `time`, `memory` or `died`. `queries` is the number of queries that may have caused the end.
    """

    cause: str
    reason: str = ""
    queries: int = 0
    default_level: ClassVar[LogLevel] = "warning"


class QueryQuarantined(Observation, frozen=True, kw_only=True, tag="query_quarantined"):
    """An ad hoc or sandbox query was quarantined, because the engine's process was killed while it ran."""

    endpoint: str
    key: str
    fingerprint: str
    default_level: ClassVar[LogLevel] = "warning"


class QuarantinedQueryRefused(Observation, frozen=True, kw_only=True, tag="quarantine_refused"):
    """A query was refused, because the query itself or its key is quarantined.

    `by` says which of them: `query` or `key`.
    """

    endpoint: str
    key: str
    by: str


class ActionAudited(Observation, frozen=True, kw_only=True, tag="audit"):
    """An administrative action was performed, such as a change of a key, or a request was refused because of its key.

    The observation is for the audit log. It never contains a secret.
    """

    action: str
    key: str = ""
    subject: str = ""
    request_id: str = ""
    default_level: ClassVar[LogLevel] = "warning"


class OperatorMessage(Observation, frozen=True, kw_only=True, tag="notice"):
    """A message for the operator."""

    message: str


# A function that takes a message for the operator.
ReportOperatorMessage = Callable[[str], None]
# A function that takes an observation.
RecordObservation = Callable[[object], None]


def ignore_message(_: str) -> None:
    """Drop the message."""


def ignore_observation(_: object) -> None:
    """Drop the observation."""


class ObservationSink(Protocol):
    """A consumer of observations. It receives all observations and ignores those that it does not need.

    `record` must be fast and must not raise.
    """

    def record(self, observation: object) -> None: ...


class Observer:
    """Passes every observation to every sink. The observer is thread-safe if all its sinks are."""

    def __init__(self, sinks: Sequence[ObservationSink] = ()) -> None:
        self._sinks = tuple(sinks)

    def record(self, observation: object) -> None:
        for sink in self._sinks:
            sink.record(observation)


_ENCODED_FIELD_BY_LEVEL = {level: f'"level":"{level}",'.encode() for level in ("debug", "info", "warning", "error")}
SEVERITY_BY_LOG_LEVEL = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LOG_BUFFER_BYTES = 32 * 1024


class JsonLineLog:
    """A log with one JSON object in each line.

    A warning or an error is written at once. Other lines are buffered until the buffer is full or `flush` is called.
    """

    def __init__(self, out: BinaryIO, level: str = "info") -> None:
        self._output_stream = out
        self._min_severity = SEVERITY_BY_LOG_LEVEL[level]
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._encoder = msgspec.json.Encoder()
        self._timestamp_prefix_second = 0
        self._timestamp_prefix = b""

    def record(self, observation: object) -> None:
        if not isinstance(observation, Observation):
            return
        level = observation.effective_level()
        if SEVERITY_BY_LOG_LEVEL[level] < self._min_severity:
            return
        line = self._encoder.encode(observation)
        with self._lock:
            self._buffer += self._encode_timestamp(time.time())
            if observation.level is UNSET:
                self._buffer += _ENCODED_FIELD_BY_LEVEL[level]
            self._buffer += line[1:]
            self._buffer += b"\n"
            if (
                len(self._buffer) >= LOG_BUFFER_BYTES
                or SEVERITY_BY_LOG_LEVEL[level] >= SEVERITY_BY_LOG_LEVEL["warning"]
            ):
                self._write_buffer()

    def flush(self) -> None:
        with self._lock:
            if self._buffer:
                self._write_buffer()

    def _encode_timestamp(self, now: float) -> bytes:
        second = int(now)
        if second != self._timestamp_prefix_second:
            self._timestamp_prefix_second = second
            self._timestamp_prefix = datetime.fromtimestamp(second, UTC).strftime('{"time":"%Y-%m-%dT%H:%M:%S').encode()
        return self._timestamp_prefix + b'.%03dZ",' % ((now - second) * 1000)

    def _write_buffer(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        try:
            self._output_stream.write(buffer)
            self._output_stream.flush()
        except (OSError, ValueError):
            # The service must continue when its log cannot be written.
            return
