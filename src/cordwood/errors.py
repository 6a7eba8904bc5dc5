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

import re
from collections.abc import Iterable, Sequence
from copy import copy
from difflib import get_close_matches
from typing import ClassVar, Final, Self

import msgspec


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint that suggests the known name most similar to `name`; None if no known name is similar."""
    closest_name = find_closest_name(name, candidates)
    return f"Did you mean {closest_name}?" if closest_name else None


# Longer names are not compared: callers choose the length of names, and comparing long names can take seconds.
MAX_COMPARED_NAME_LENGTH: Final = 100


def find_closest_name(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate that is most similar to `name`, ignoring case; None if none is similar.

    Names of more than `MAX_COMPARED_NAME_LENGTH` characters are ignored.
    """
    if len(name) > MAX_COMPARED_NAME_LENGTH:
        return None
    by_lower = {candidate.lower(): candidate for candidate in candidates if len(candidate) <= MAX_COMPARED_NAME_LENGTH}
    matches = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


class Span(msgspec.Struct, frozen=True):
    """A position in a text that an author wrote: line and column, both counted from 1, and the file if there is one."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        position = f"{self.line}:{self.column}"
        return f"{self.file}:{position}" if self.file else position


class Fault(Exception):
    """An error that the service reports.

    `hint` says how to correct it, `span` is the position in the text that has the error, and `retry_after` is the
    number of seconds after which the caller can try again.
    """

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
        """Return the position, message and hint of the error in one line, for a terminal or a log."""
        position = f"{self.span}: " if self.span else ""
        # A message may lack a full stop if it ends with text that the caller sent.
        end = "" if not self.hint or self.message.endswith((".", "!", "?", ":")) else "."
        return f"{position}{self.message}{end}" + (f" {self.hint}" if self.hint else "")


class RequestFault(Fault):
    """An error in the request itself: its key, parameters, body or URL."""


class MissingApiKey(RequestFault):
    code = "request.no-key"


class BadApiKey(RequestFault):
    code = "request.bad-key"


class ConflictingApiKeys(RequestFault):
    """The request contains two different keys."""

    code = "request.two-keys"


class Forbidden(RequestFault):
    code = "request.forbidden"


class BadSignature(Forbidden):
    """The request of a webhook is not signed with the secret in the settings."""

    code = "request.bad-signature"


class UnknownEndpoint(RequestFault):
    code = "request.unknown-endpoint"


class UnknownStream(RequestFault):
    code = "request.unknown-stream"


class UnknownAlert(RequestFault):
    code = "request.unknown-alert"


class PathNotFound(RequestFault):
    code = "request.unknown-route"


class MethodNotAllowed(RequestFault):
    code = "request.bad-method"


class FeatureUnavailable(RequestFault):
    """The requested feature does not exist in cordwood, or requires an optional dependency that is not installed."""

    code = "request.not-offered"


class BadParameter(RequestFault):
    code = "request.bad-parameter"


class InvalidFieldFault(RequestFault):
    """An invalid field in the request's body. `field` is its name; `problem` says what is wrong with its value."""

    def __init__(
        self, field: str, problem: str, *, hint: str | None = None, message: str | None = None, span: Span | None = None
    ) -> None:
        super().__init__(message or f"{field} {problem}.", hint=hint, span=span)
        self.field = field
        self.problem = problem


class BadApiKeyTerms(InvalidFieldFault):
    """One of the terms with which a key should be created is invalid."""

    code = "request.bad-terms"


class BadDefinition(InvalidFieldFault):
    """The sent definition of an endpoint or a stream is invalid. A span is a position in the sent query."""

    code = "request.bad-definition"


class ReadOnlyDefinition(RequestFault):
    """The definition cannot be changed over HTTP, because it ships with cordwood or is in a file of the operator."""

    code = "request.read-only"


class StreamInUse(RequestFault):
    """The stream cannot be deleted because an endpoint reads it."""

    code = "request.in-use"


class RevisionMismatch(RequestFault):
    """The definition has been changed: its revision is not the one that the header If-Match expects."""

    code = "request.changed-meanwhile"


class UnknownDefinitionVersion(RequestFault):
    """The version of a definition does not exist, or is no longer stored."""

    code = "request.unknown-version"


class UnknownApiKey(RequestFault):
    code = "request.unknown-key"


class UnknownResource(RequestFault):
    """There is no quarantined item, notification target or silence with this id or name."""

    code = "request.unknown-item"


class ItemNotReplayable(RequestFault):
    """The quarantined item is still invalid, so a replay cannot store it as an event."""

    code = "request.not-replayable"


class NothingToBackUp(RequestFault):
    """The events are stored in an external engine, so cordwood cannot back them up."""

    code = "request.nothing-to-back-up"


class BadBody(RequestFault):
    code = "request.bad-body"


class NoReadableItem(BadBody):
    """No item of the body can be decoded. `index` and `reason` describe the first of these items."""

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
    """An error in the text of the query. Its author has to correct it."""


class BadQuerySyntax(QueryFault):
    code = "query.syntax"


class QueryRefused(QueryFault):
    code = "query.refused"


class UnknownNameInQuery(QueryFault):
    code = "query.unknown-name"


class AmbiguousName(QueryFault):
    code = "query.ambiguous-name"


class QueryUnsupported(QueryFault):
    code = "query.unsupported"


class BadQueryValue(QueryFault):
    """A value in the query is invalid, or an operation on a value failed while the query ran.

    An error that occurred while the query ran has no span. Its hint names functions of BigQuery SQL, because engines do
    not know the language of the query. `name_other_functions` adapts the hint to a query in another language.
    """

    code = "query.value"

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, retry_after: float | None = None
    ) -> None:
        run_time_hint = None if span else "SAFE_CAST, SAFE_DIVIDE and SAFE. before a function give NULL instead."
        super().__init__(message, hint=hint or run_time_hint, span=span, retry_after=retry_after)

    def name_other_functions(self, remedy: str) -> Self:
        """Return a copy of the error with `remedy` in place of the functions of BigQuery SQL that its hint names."""
        adapted = copy(self)
        if self.hint is not None:
            adapted.hint = _BIGQUERY_REMEDY_PATTERN.sub(lambda _: remedy, self.hint)
        return adapted


# What a hint says about the functions of BigQuery SQL that return NULL instead of failing.
_BIGQUERY_REMEDY_PATTERN: Final = re.compile(r"SAFE_CAST\b.*?\binstead\.")


class PlanTooLarge(QueryFault):
    """The query is expanded to a plan that is too large for the engine."""

    code = "limit.plan"


class CompilationTimeout(QueryFault):
    """The compilation of the query took more time than allowed."""

    code = "limit.compile"


class LimitFault(Fault):
    """The request exceeds a limit, for example on rows, bytes, time, memory, rate or concurrency."""


class QueryOutOfTime(LimitFault):
    code = "limit.time"


class OutOfMemory(LimitFault):
    code = "limit.memory"


class QueryKilled(LimitFault):
    """The engine's process was killed because this query did not stop in time or used too much memory."""

    code = "limit.killed"


class QuarantinedQuery(LimitFault):
    """The query is refused for some minutes, because the engine's process was killed when it ran earlier.

    If several queries of one key had this effect, all queries with this key are refused, except saved queries.
    """

    code = "limit.quarantined-query"


class OutOfDisk(LimitFault):
    code = "limit.disk"


class QueryCancelled(LimitFault):
    code = "limit.cancelled"


class TooManyRows(LimitFault):
    code = "limit.rows"


class AnswerTooLarge(LimitFault):
    code = "limit.bytes"


class RequestRateExceeded(LimitFault):
    code = "limit.rate"


class TooManyFollowedQueries(LimitFault):
    """Too many connections follow queries, for one key, for one network address or for the whole service."""

    code = "limit.followers"


class StreamRateExceeded(LimitFault):
    code = "limit.stream-rate"


class LargeEventLimitExceeded(LimitFault):
    code = "limit.large-events"


class TooManyDefinitions(LimitFault):
    """The data folder already has the maximum number of endpoints or of streams."""

    code = "limit.definitions"


class ServiceBusy(LimitFault):
    code = "limit.busy"


class BacklogFull(LimitFault):
    code = "limit.backlog"


class ServiceFault(Fault):
    """The service refuses requests because it is starting or stopping, or a command line client could not use it."""


class ServiceStarting(ServiceFault):
    code = "service.starting"


class ServiceDraining(ServiceFault):
    code = "service.draining"


class ServiceUnreachable(ServiceFault):
    """A client command cannot reach the service."""

    code = "service.unreachable"


class RefusedByService(ServiceFault):
    """The service refused a client command. The message comes from the service."""

    code = "service.refused"


class EngineFault(Fault):
    """The engine cannot be reached, or it failed."""


class EngineUnreachable(EngineFault):
    code = "engine.unreachable"


class EngineKilledDuringQuery(EngineUnreachable):
    """The engine's process was killed while this query ran, because this or another query did not stop in time."""


class EngineFailed(EngineFault):
    code = "engine.failed"


class SetupFault(Fault):
    """The service cannot start because of an error in its settings, files or data folder.

    `setting_path` is the path of the invalid setting; it is empty if the path is not known.
    """

    setting_path: tuple[str | int, ...] = ()


class BadEndpointFile(SetupFault):
    code = "setup.endpoint-file"


class BadStreamFile(SetupFault):
    code = "setup.stream-file"


class BadTestPage(SetupFault):
    code = "setup.test-page"


class BrokenDefinitionFiles(SetupFault):
    """Files of endpoints, streams or alerts could not be read or compiled. The message lists all errors."""

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
    """The backup cannot be restored: it is incomplete, was changed, or was made by a newer version of cordwood."""

    code = "setup.bad-backup"


class BugFault(Fault):
    """An internal error. The caller receives an incident id, by which the operator can find the details in the log."""

    code = "bug.internal"


class IsolationCheckFailed(BugFault):
    """The isolation check refused a compiled statement, so the statement was not run.

    The log has the text of the statement with the incident id.
    """

    code = "bug.isolation"


class CompilerFailed(BugFault):
    """The compiler raised an unexpected exception for a query. The exception is the cause of this error."""

    code = "bug.compiler"


# The errors that compiling a query can raise: mistakes in the query, and unexpected exceptions in the compiler.
COMPILE_FAULTS = (QueryFault, CompilerFailed)
