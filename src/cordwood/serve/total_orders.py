"""Total orders of answers that are cut: for which queries they were used, their time limits, and failures.

Rows of groups, unions and other queries without ids get a total order only once an answer is cut. Then the query is run
again, ordered by the columns of the answer. That may cost far more than a run that stops at its limit, and it may fail
at a row that the first run did not reach. A query whose last answer was cut and ordered is ordered in its first run.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from cordwood.serve.jobs import Job

# The time limit of an ordered run: this long, or `_LIMIT_FACTOR` times the duration of the run before.
_QUICK_SECONDS: Final = 1.0
_LIMIT_FACTOR: Final = 2.0
RETRY_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 2_000


class _Outcome(NamedTuple):
    """The outcome of the last ordered run of a query: its seconds, or None if it failed."""

    noted_at: float
    seconds: float | None


class TotalOrders:
    """The outcomes of the last few thousand queries; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: OrderedDict[bytes, _Outcome] = OrderedDict()

    def seconds_at_once(self, job: Job) -> float | None:
        """Return the time limit of a first run that is ordered, or None if the last answer was not ordered."""
        outcome = self._outcomes.get(_key(job))
        if outcome is None or outcome.seconds is None:
            return None
        return min(job.limits.seconds, max(_QUICK_SECONDS, _LIMIT_FACTOR * outcome.seconds))

    def seconds_after_cut(self, job: Job, engine_seconds: float) -> float | None:
        """Return the time limit of an ordered second run; None if one failed a short while ago."""
        outcome = self._outcomes.get(_key(job))
        if outcome is not None and outcome.seconds is None and self._clock() - outcome.noted_at < RETRY_SECONDS:
            return None
        return min(job.limits.seconds - engine_seconds, max(_QUICK_SECONDS, _LIMIT_FACTOR * engine_seconds))

    def note(self, job: Job, seconds: float | None) -> None:
        """Record how long an ordered run took, or None if it failed."""
        key = _key(job)
        self._outcomes[key] = _Outcome(self._clock(), seconds)
        self._outcomes.move_to_end(key)
        if len(self._outcomes) > _MAX_REMEMBERED:
            self._outcomes.popitem(last=False)

    def forget(self, job: Job) -> None:
        """Run the query without an order the next time, because its answer is no longer cut."""
        self._outcomes.pop(_key(job), None)


def _key(job: Job) -> bytes:
    """Return a digest of the statement and its caller, so that values of one caller do not affect answers of others."""
    request = job.request
    return blake2b(msgspec.msgpack.encode((job.question.statement.digest, request.account, request.pin_items))).digest()
