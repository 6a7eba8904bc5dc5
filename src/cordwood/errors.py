"""Every way a request can fail, as a tree of faults with codes that are never reused.

Fault
├── RequestFault   request.*   the caller's move: another key, parameter, body or address
├── QueryFault     query.*     the author's move: another query; carries a Span in the author's own text;
│                              limit.plan and limit.compile too, for they are the query's own size
├── LimitFault     limit.*     ask for less, or later
├── ServiceFault   service.*   later: the service is starting or stopping
├── EngineFault    engine.*    the operator's move: the engine is away or broke
├── SetupFault     setup.*     the operator's move, before serving: a file, a setting, the data folder
└── BugFault       bug.*       ours; carries an incident id that also stands in the log

HTTP statuses live in `web/problems.py` alone.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar, Final

import msgspec


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The hint for a name that nobody knows: the nearest that is known, if any is near."""
    found = closest(name, known)
    return f"Did you mean {found}?" if found else None


# To compare long names takes seconds, and callers and senders choose them.
LONGEST_COMPARED: Final = 100


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is spelled most alike, whatever its case; None where none is. Long names are left out."""
    if len(name) > LONGEST_COMPARED:
        return None
    by_lower = {one.lower(): one for one in known if len(one) <= LONGEST_COMPARED}
    found = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


class Span(msgspec.Struct, frozen=True):
    """A place in the author's text: line and column count from 1."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}"
        return f"{self.file}:{place}" if self.file else place


class Fault(Exception):
    """What went wrong (message), what to do next (hint), where (span), and when to try again."""

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
        """The fault in one line, for a terminal or a log."""
        place = f"{self.span}: " if self.span else ""
        # A sentence that ends with what the caller wrote has no full stop of its own.
        end = "" if not self.hint or self.message.endswith((".", "!", "?", ":")) else "."
        return f"{place}{self.message}{end}" + (f" {self.hint}" if self.hint else "")


class RequestFault(Fault):
    """The request cannot be served as it was sent."""


class NoKey(RequestFault):
    code = "request.no-key"


class BadKey(RequestFault):
    code = "request.bad-key"


class TwoKeys(RequestFault):
    """The request carries two different keys: which of them counts is not for the service to guess."""

    code = "request.two-keys"


class Forbidden(RequestFault):
    code = "request.forbidden"


class BadSignature(Forbidden):
    """A webhook is not signed with the secret that the settings give."""

    code = "request.bad-signature"


class UnknownEndpoint(RequestFault):
    code = "request.unknown-endpoint"


class UnknownStream(RequestFault):
    code = "request.unknown-stream"


class UnknownRoute(RequestFault):
    code = "request.unknown-route"


class BadMethod(RequestFault):
    code = "request.bad-method"


class NotOffered(RequestFault):
    """A client of the incumbent asks for something that cordwood does not have on purpose."""

    code = "request.not-offered"


class BadParameter(RequestFault):
    code = "request.bad-parameter"


class BadTerms(RequestFault):
    """A key's terms cannot be meant; `field` is the one that is wrong, `problem` what is wrong with it."""

    code = "request.bad-terms"

    def __init__(self, field: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field} {problem}.", hint=hint)
        self.field = field
        self.problem = problem


class UnknownKey(RequestFault):
    code = "request.unknown-key"


class UnknownItem(RequestFault):
    """Nothing of this id was set aside."""

    code = "request.unknown-item"


class NotReplayable(RequestFault):
    """What was set aside cannot be stored now either."""

    code = "request.not-replayable"


class NothingToBackUp(RequestFault):
    """What is stored lies with somebody else, who makes backups of it."""

    code = "request.nothing-to-back-up"


class BadBody(RequestFault):
    code = "request.bad-body"


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
    """Without a place it was found only as the query ran, in a value that its author has never seen."""

    code = "query.value"

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, retry_after: float | None = None
    ) -> None:
        found_running = None if span else "SAFE_CAST, SAFE_DIVIDE and SAFE. before a function give NULL instead."
        super().__init__(message, hint=hint or found_running, span=span, retry_after=retry_after)


class PlanTooLarge(QueryFault):
    """What the query means, spelled out, is more than an engine may be asked to plan."""

    code = "limit.plan"


class CompileTooLong(QueryFault):
    """The compiler gave the query up."""

    code = "limit.compile"


class LimitFault(Fault):
    """The answer is out of reach within the limits that are set."""


class OutOfTime(LimitFault):
    code = "limit.time"


class OutOfMemory(LimitFault):
    code = "limit.memory"


class QueryKilled(LimitFault):
    """The query did not stop, or took the memory: the engine's process was killed with it."""

    code = "limit.killed"


class QuarantinedQuery(LimitFault):
    """The query, or another of its caller's, had to be killed a short while ago."""

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


class StreamRateExceeded(LimitFault):
    code = "limit.stream-rate"


class LargeEventsExceeded(LimitFault):
    code = "limit.large-events"


class Busy(LimitFault):
    code = "limit.busy"


class Backlog(LimitFault):
    code = "limit.backlog"


class ServiceFault(Fault):
    """The service itself is not ready."""


class Starting(ServiceFault):
    code = "service.starting"


class Draining(ServiceFault):
    code = "service.draining"


class Unreachable(ServiceFault):
    """A client command finds nobody there."""

    code = "service.unreachable"


class Refused(ServiceFault):
    """A client command was refused; the message is the service's own."""

    code = "service.refused"


class EngineFault(Fault):
    """The engine under the service failed."""


class EngineUnreachable(EngineFault):
    code = "engine.unreachable"


class EngineFailed(EngineFault):
    code = "engine.failed"


class SetupFault(Fault):
    """The service cannot start as it is set up."""


class BadEndpointFile(SetupFault):
    code = "setup.endpoint-file"


class BadStreamFile(SetupFault):
    code = "setup.stream-file"


class BadTestPage(SetupFault):
    code = "setup.test-page"


class BrokenFiles(SetupFault):
    """Every file that cannot be served, not only the first."""

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
    """What should be a backup is not whole, not as it was written, or of a newer version."""

    code = "setup.bad-backup"


class BugFault(Fault):
    """A fault of ours: the caller gets an incident id, the log gets the rest."""

    code = "bug.internal"


class IsolationBroken(BugFault):
    """A compiled statement would have read what it may not: it was not run. The log has its text under the incident."""

    code = "bug.isolation"


class CompilerBroke(BugFault):
    """The compiler broke on a query that it should have compiled or refused; the cause tells where."""

    code = "bug.compiler"


# What a query that is not compiled ends with: the author's mistake, or the compiler's.
NOT_COMPILED = (QueryFault, CompilerBroke)
