"""The errors of the service, as a tree of exceptions whose codes are never reused.

    Fault
    ├── RequestFault   request.*   the caller has to change the key, a parameter, the body or the URL
    ├── QueryFault     query.*     the author has to change the query; carries a Span in the query's text;
    │                              also limit.plan and limit.compile, which concern the query's own size
    ├── LimitFault     limit.*     the caller has to request less, or later
    ├── ServiceFault   service.*   the service is starting or stopping (retry later), or a client command failed
    ├── EngineFault    engine.*    the engine is unavailable or failed: the operator has to act
    ├── SetupFault     setup.*     a file, a setting or the data folder is wrong: the operator has to correct it
    └── BugFault       bug.*       an internal error, whose incident id is also in the log

HTTP statuses are assigned in `web/problems.py` alone.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar, Final

import msgspec


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint with the most similar known name, or None if no known name is similar."""
    closest_name = find_closest_name(name, candidates)
    return f"Did you mean {closest_name}?" if closest_name else None


# Names that are longer than this are not compared, because callers choose their length, and comparing long names can
# take seconds.
MAX_COMPARED_NAME_LENGTH: Final = 100


def find_closest_name(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar known name, ignoring case, or None if no known name is similar.

    Names of more than `MAX_COMPARED_NAME_LENGTH` characters are ignored.
    """
    if len(name) > MAX_COMPARED_NAME_LENGTH:
        return None
    by_lower = {candidate.lower(): candidate for candidate in candidates if len(candidate) <= MAX_COMPARED_NAME_LENGTH}
    matches = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


class Span(msgspec.Struct, frozen=True):
    """A position in the text that an author wrote: line and column, both counted from 1."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        position = f"{self.line}:{self.column}"
        return f"{self.file}:{position}" if self.file else position


class Fault(Exception):
    """An error with a message, a hint on what to do, a position in the query's text, and the time before a retry."""

    code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        span: Span | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span
        self.retry_after = retry_after

    def one_line_text(self) -> str:
        """Return the error in one line, for a terminal or a log."""
        position = f"{self.span}: " if self.span else ""
        # A message that ends with a quotation of the caller's text may lack a full stop.
        end = "" if not self.hint or self.message.endswith((".", "!", "?", ":")) else "."
        return f"{position}{self.message}{end}" + (f" {self.hint}" if self.hint else "")


class RequestFault(Fault):
    """An error in the request itself: its key, parameters, body or URL."""


class NoKey(RequestFault):
    code = "request.no-key"


class BadKey(RequestFault):
    code = "request.bad-key"


class ConflictingKeys(RequestFault):
    """The request contains two different keys."""

    code = "request.two-keys"


class Forbidden(RequestFault):
    code = "request.forbidden"


class BadSignature(Forbidden):
    """The body of a webhook is not signed with the secret in the settings."""

    code = "request.bad-signature"


class UnknownEndpoint(RequestFault):
    code = "request.unknown-endpoint"


class UnknownStream(RequestFault):
    code = "request.unknown-stream"


class UnknownAlert(RequestFault):
    code = "request.unknown-alert"


class UnknownRoute(RequestFault):
    code = "request.unknown-route"


class BadMethod(RequestFault):
    code = "request.bad-method"


class FeatureUnavailable(RequestFault):
    """The request is for a feature that cordwood does not have, or whose optional dependency is not installed."""

    code = "request.not-offered"


class BadParameter(RequestFault):
    code = "request.bad-parameter"


class FieldFault(RequestFault):
    """An invalid field of the body: `field` is its name, `problem` says what is wrong with its value."""

    def __init__(
        self, field: str, problem: str, *, hint: str | None = None, message: str | None = None, span: Span | None = None
    ) -> None:
        super().__init__(message or f"{field} {problem}.", hint=hint, span=span)
        self.field = field
        self.problem = problem


class BadKeyTerms(FieldFault):
    """A term of a key is invalid."""

    code = "request.bad-terms"


class BadDefinition(FieldFault):
    """The definition of an endpoint or a stream is invalid. If there is a span, it is a position in the sent query."""

    code = "request.bad-definition"


class ReadOnlyDefinition(RequestFault):
    """The definition cannot be changed over HTTP: it ships with cordwood or is in a file of the operator."""

    code = "request.read-only"


class StreamInUse(RequestFault):
    """The stream cannot be deleted because an endpoint reads it."""

    code = "request.in-use"


class RevisionMismatch(RequestFault):
    """The revision in the If-Match header is not the current one."""

    code = "request.changed-meanwhile"


class UnknownVersion(RequestFault):
    """The version of a definition does not exist, or has been deleted because of its age."""

    code = "request.unknown-version"


class UnknownKey(RequestFault):
    code = "request.unknown-key"


class UnknownResource(RequestFault):
    """The quarantine has no item with this id."""

    code = "request.unknown-item"


class ItemNotReplayable(RequestFault):
    """The quarantined item is still invalid, so it cannot be stored by a replay."""

    code = "request.not-replayable"


class NothingToBackUp(RequestFault):
    """The events are stored in an external engine, so cordwood cannot back them up."""

    code = "request.nothing-to-back-up"


class BadBody(RequestFault):
    code = "request.bad-body"


class NoReadableItem(BadBody):
    """No item of the body can be decoded. `index` and `reason` describe the first item that cannot."""

    def __init__(self, index: int, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"No item of the body can be read. Item {index + 1}: {reason}", hint=hint)
        self.index = index
        self.reason = reason


class UnsupportedMediaType(RequestFault):
    code = "request.unsupported-media"


class NotAcceptable(RequestFault):
    code = "request.not-acceptable"


class BodyTooLarge(RequestFault):
    code = "request.too-large"


class RequestTooSlow(RequestFault):
    code = "request.too-slow"


class RequestLineTooLong(RequestFault):
    code = "request.address-too-long"


class HeadersTooLarge(RequestFault):
    code = "request.headers-too-large"


class MalformedHttpRequest(RequestFault):
    code = "request.malformed"


class QueryFault(Fault):
    """An error in the text of the query, which its author has to correct."""


class BadQuerySyntax(QueryFault):
    code = "query.syntax"


class QueryRefused(QueryFault):
    code = "query.refused"


class UnknownQueryName(QueryFault):
    code = "query.unknown-name"


class AmbiguousName(QueryFault):
    code = "query.ambiguous-name"


class QueryUnsupported(QueryFault):
    code = "query.unsupported"


class BadQueryValue(QueryFault):
    """An operation of the query fails on a value. An error without a span occurred while the query ran."""

    code = "query.value"

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, retry_after: float | None = None
    ) -> None:
        run_time_hint = None if span else "SAFE_CAST, SAFE_DIVIDE and SAFE. before a function give NULL instead."
        super().__init__(message, hint=hint or run_time_hint, span=span, retry_after=retry_after)


class PlanTooLarge(QueryFault):
    """The query expands to a plan that is too large for the engine."""

    code = "limit.plan"


class CompileTooLong(QueryFault):
    """The compiler exceeded its time budget."""

    code = "limit.compile"


class LimitFault(Fault):
    """The request exceeds a limit: of rows, bytes, time, memory, rate or concurrency."""


class QueryOutOfTime(LimitFault):
    code = "limit.time"


class OutOfMemory(LimitFault):
    code = "limit.memory"


class QueryKilled(LimitFault):
    """The engine's process was killed because the query did not stop or used too much memory."""

    code = "limit.killed"


class QuarantinedQuery(LimitFault):
    """The query, or its key, is refused for a while, because the engine's process was killed for earlier queries."""

    code = "limit.quarantined-query"


class OutOfDisk(LimitFault):
    code = "limit.disk"


class QueryCancelled(LimitFault):
    code = "limit.cancelled"


class TooManyRows(LimitFault):
    code = "limit.rows"


class TooManyBytes(LimitFault):
    code = "limit.bytes"


class RequestRateExceeded(LimitFault):
    code = "limit.rate"


class TooManyFollowers(LimitFault):
    """The limit on connections that follow queries is reached, for a key, a network address or the whole service."""

    code = "limit.followers"


class StreamRateExceeded(LimitFault):
    code = "limit.stream-rate"


class LargeEventsExceeded(LimitFault):
    code = "limit.large-events"


class TooManyDefinitions(LimitFault):
    """The data folder has the maximum number of endpoints or streams."""

    code = "limit.definitions"


class ServiceBusy(LimitFault):
    code = "limit.busy"


class BacklogFull(LimitFault):
    code = "limit.backlog"


class ServiceFault(Fault):
    """The service is starting or stopping and answers no requests, or it could not serve a client command."""


class ServiceStarting(ServiceFault):
    code = "service.starting"


class ServiceDraining(ServiceFault):
    code = "service.draining"


class ServiceUnreachable(ServiceFault):
    """A client command cannot reach the service."""

    code = "service.unreachable"


class RefusedByService(ServiceFault):
    """The service refused a client command; the message is the service's own."""

    code = "service.refused"


class EngineFault(Fault):
    """The engine is unavailable or failed."""


class EngineUnreachable(EngineFault):
    code = "engine.unreachable"


class EngineKilledDuringQuery(EngineUnreachable):
    """The engine's process was killed because this query, or another that was running, did not stop in time."""


class EngineFailed(EngineFault):
    code = "engine.failed"


class SetupFault(Fault):
    """The service cannot start because of its settings, files or data folder.

    `setting_path` is the path of the invalid setting, empty if it is not known.
    """

    setting_path: tuple[str | int, ...] = ()


class BadEndpointFile(SetupFault):
    code = "setup.endpoint-file"


class BadStreamFile(SetupFault):
    code = "setup.stream-file"


class BadTestPage(SetupFault):
    code = "setup.test-page"


class BrokenDefinitionFiles(SetupFault):
    """A report of the errors in files of endpoints, streams and alerts that could not be read or compiled."""

    code = "setup.broken-files"

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault.one_line_text() for fault in faults))
        self.faults = tuple(faults)


class BadSetting(SetupFault):
    code = "setup.setting"


class DataFolderInUse(SetupFault):
    code = "setup.data-folder-in-use"


class DataFolderUnusable(SetupFault):
    code = "setup.data-folder-unusable"


class BadBackup(SetupFault):
    """The backup is incomplete, was changed, or was made by a newer version."""

    code = "setup.bad-backup"


class BugFault(Fault):
    """An internal error. The caller receives an incident id, with which the details can be found in the log."""

    code = "bug.internal"


class IsolationCheckFailed(BugFault):
    """The isolation check refused a compiled statement, so it was not run.

    The log has the text of the statement, with the incident id.
    """

    code = "bug.isolation"


class CompilerFailed(BugFault):
    """The compiler raised an unexpected exception for a query. The cause of this error has the traceback."""

    code = "bug.compiler"


# The errors that compiling a query can raise: mistakes in the query, and unexpected exceptions in the compiler.
COMPILE_FAULTS = (QueryFault, CompilerFailed)
