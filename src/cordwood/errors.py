"""The errors of the service, as a tree of exceptions whose codes are never reused.

    Fault
    ├── RequestFault   request.*   the caller has to change the key, a parameter, the body or the URL
    ├── QueryFault     query.*     the author has to change the query; carries a Span in the author's text;
    │                              also limit.plan and limit.compile, which concern the query's own size
    ├── LimitFault     limit.*     the caller has to request less, or later
    ├── ServiceFault   service.*   the service is starting or stopping: retry later
    ├── EngineFault    engine.*    the engine is unavailable or failed: for the operator
    ├── SetupFault     setup.*     a file, a setting or the data folder is wrong: for the operator, before serving
    └── BugFault       bug.*       an internal error, whose incident id is also in the log

HTTP statuses are assigned in `web/problems.py` alone.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar, Final

import msgspec


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint with the nearest known name; None if none is near."""
    closest_name = closest(name, candidates)
    return f"Did you mean {closest_name}?" if closest_name else None


# Comparing long names takes seconds, and callers choose them.
LONGEST_COMPARED: Final = 100


def closest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar known name, ignoring case; None if none is similar. Long names are skipped."""
    if len(name) > LONGEST_COMPARED:
        return None
    by_lower = {candidate.lower(): candidate for candidate in candidates if len(candidate) <= LONGEST_COMPARED}
    matches = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


class Span(msgspec.Struct, frozen=True):
    """A place in the author's text: line and column, from 1."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        position = f"{self.line}:{self.column}"
        return f"{self.file}:{position}" if self.file else position


class Fault(Exception):
    """An error: the message, what to do about it (hint), where (span), and when to retry."""

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

    def told(self) -> str:
        """Return the error in one line, for a terminal or a log."""
        position = f"{self.span}: " if self.span else ""
        # A message that ends with the caller's own text may have no full stop.
        end = "" if not self.hint or self.message.endswith((".", "!", "?", ":")) else "."
        return f"{position}{self.message}{end}" + (f" {self.hint}" if self.hint else "")


class RequestFault(Fault):
    """The request cannot be served as it was sent."""


class NoKey(RequestFault):
    code = "request.no-key"


class BadKey(RequestFault):
    code = "request.bad-key"


class TwoKeys(RequestFault):
    """The request has two different keys."""

    code = "request.two-keys"


class Forbidden(RequestFault):
    code = "request.forbidden"


class BadSignature(Forbidden):
    """A webhook is not signed with the secret in the settings."""

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


class NotOffered(RequestFault):
    """The request is for something that cordwood does not offer, or whose extra is not installed."""

    code = "request.not-offered"


class BadParameter(RequestFault):
    code = "request.bad-parameter"


class FieldFault(RequestFault):
    """A field of the body is invalid; `field` is its name, `problem` what is wrong."""

    def __init__(
        self, field: str, problem: str, *, hint: str | None = None, message: str | None = None, span: Span | None = None
    ) -> None:
        super().__init__(message or f"{field} {problem}.", hint=hint, span=span)
        self.field = field
        self.problem = problem


class BadTerms(FieldFault):
    """A term of a key is invalid."""

    code = "request.bad-terms"


class BadDefinition(FieldFault):
    """The definition of an endpoint or a stream is invalid; the span is a place in the query that was sent."""

    code = "request.bad-definition"


class ReadOnly(RequestFault):
    """The definition ships with cordwood or comes from an operator's file, which cannot be changed over HTTP."""

    code = "request.read-only"


class InUse(RequestFault):
    """A stream cannot be deleted while an endpoint reads it."""

    code = "request.in-use"


class ChangedMeanwhile(RequestFault):
    """The revision in If-Match is not the current one."""

    code = "request.changed-meanwhile"


class UnknownVersion(RequestFault):
    """The version does not exist, or is no longer kept."""

    code = "request.unknown-version"


class UnknownKey(RequestFault):
    code = "request.unknown-key"


class UnknownItem(RequestFault):
    """The quarantine has no item of this id."""

    code = "request.unknown-item"


class NotReplayable(RequestFault):
    """A quarantined item cannot be stored now either."""

    code = "request.not-replayable"


class NothingToBackUp(RequestFault):
    """The events are stored in an external engine, which has its own backups."""

    code = "request.nothing-to-back-up"


class BadBody(RequestFault):
    code = "request.bad-body"


class NoReadableItem(BadBody):
    """No item of the body can be read; `index` is the position of the first one."""

    def __init__(self, index: int, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"No item of the body can be read. Item {index + 1}: {reason}", hint=hint)
        self.index = index
        self.reason = reason


class UnsupportedMedia(RequestFault):
    code = "request.unsupported-media"


class NotAcceptable(RequestFault):
    code = "request.not-acceptable"


class TooLarge(RequestFault):
    code = "request.too-large"


class TooSlow(RequestFault):
    code = "request.too-slow"


class AddressTooLong(RequestFault):
    code = "request.address-too-long"


class HeadersTooLarge(RequestFault):
    code = "request.headers-too-large"


class Malformed(RequestFault):
    code = "request.malformed"


class QueryFault(Fault):
    """The query cannot be answered as it was written."""


class QuerySyntax(QueryFault):
    code = "query.syntax"


class QueryRefused(QueryFault):
    code = "query.refused"


class UnknownName(QueryFault):
    code = "query.unknown-name"


class AmbiguousName(QueryFault):
    code = "query.ambiguous-name"


class QueryUnsupported(QueryFault):
    code = "query.unsupported"


class QueryValue(QueryFault):
    """A value that an operation cannot take. Without a span it was found while the query ran."""

    code = "query.value"

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, retry_after: float | None = None
    ) -> None:
        run_time_hint = None if span else "SAFE_CAST, SAFE_DIVIDE and SAFE. before a function give NULL instead."
        super().__init__(message, hint=hint or run_time_hint, span=span, retry_after=retry_after)


class PlanTooLarge(QueryFault):
    """The query expands to a larger plan than engines are given."""

    code = "limit.plan"


class CompileTooLong(QueryFault):
    """The compiler exceeded its time budget."""

    code = "limit.compile"


class LimitFault(Fault):
    """The answer exceeds a limit."""


class OutOfTime(LimitFault):
    code = "limit.time"


class OutOfMemory(LimitFault):
    code = "limit.memory"


class QueryKilled(LimitFault):
    """The query did not stop or used too much memory, and the engine's process was killed."""

    code = "limit.killed"


class QuarantinedQuery(LimitFault):
    """The query, or another one of its key, was killed a short while ago."""

    code = "limit.quarantined-query"


class OutOfDisk(LimitFault):
    code = "limit.disk"


class Cancelled(LimitFault):
    code = "limit.cancelled"


class TooManyRows(LimitFault):
    code = "limit.rows"


class TooManyBytes(LimitFault):
    code = "limit.bytes"


class RateExceeded(LimitFault):
    code = "limit.rate"


class TooManyFollowers(LimitFault):
    """A key, an address or the service has its most connections that follow queries."""

    code = "limit.followers"


class StreamRateExceeded(LimitFault):
    code = "limit.stream-rate"


class LargeEventsExceeded(LimitFault):
    code = "limit.large-events"


class TooManyDefinitions(LimitFault):
    """The data folder has reached its maximum number of endpoints or streams."""

    code = "limit.definitions"


class Busy(LimitFault):
    code = "limit.busy"


class Backlog(LimitFault):
    code = "limit.backlog"


class ServiceFault(Fault):
    """The service is not ready."""


class Starting(ServiceFault):
    code = "service.starting"


class Draining(ServiceFault):
    code = "service.draining"


class Unreachable(ServiceFault):
    """A client command cannot reach the service."""

    code = "service.unreachable"


class Refused(ServiceFault):
    """The service refused a client command; the message is the service's own."""

    code = "service.refused"


class EngineFault(Fault):
    """The engine failed."""


class EngineUnreachable(EngineFault):
    code = "engine.unreachable"


class EngineFailed(EngineFault):
    code = "engine.failed"


class SetupFault(Fault):
    """The service cannot start with its configuration; `path` is the invalid setting, if known."""

    path: tuple[str | int, ...] = ()


class BadEndpointFile(SetupFault):
    code = "setup.endpoint-file"


class BadStreamFile(SetupFault):
    code = "setup.stream-file"


class BadTestPage(SetupFault):
    code = "setup.test-page"


class BrokenFiles(SetupFault):
    """The errors of all files."""

    code = "setup.broken-files"

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault.told() for fault in faults))
        self.faults = tuple(faults)


class BadSetting(SetupFault):
    code = "setup.setting"


class DataFolderInUse(SetupFault):
    code = "setup.data-folder-in-use"


class DataFolderUnusable(SetupFault):
    code = "setup.data-folder-unusable"


class BadBackup(SetupFault):
    """A backup is incomplete, changed, or of a newer version."""

    code = "setup.bad-backup"


class BugFault(Fault):
    """An internal error: the caller gets an incident id, the log has the details."""

    code = "bug.internal"


class IsolationBroken(BugFault):
    """The isolation check refused a compiled statement, which was not run.

    The log has its text under the incident id.
    """

    code = "bug.isolation"


class CompilerBroke(BugFault):
    """The compiler failed on a query that it should have compiled or refused; the cause has the place."""

    code = "bug.compiler"


# The errors of compilation: the author's or the compiler's.
NOT_COMPILED = (QueryFault, CompilerBroke)
