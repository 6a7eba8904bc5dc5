"""The recent runs of queries in a total order, which an answer needs for its next page, and time limits for such runs.

Rows of groups, unions and other queries without ids get a total order only if an answer is cut off at the row limit.
Then the query is run again, ordered by the columns of the answer. This may cost far more than the run that stopped at
the limit, and it may fail at a row that the first run did not reach. If the last answer of a query was ordered in this
way, the next one is ordered in its first run.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from cordwood.serve.jobs import Job

# The time limit of an ordered run: the longer of this time and `_LIMIT_FACTOR` times the duration of the run before.
_QUICK_SECONDS: Final = 1.0
_LIMIT_FACTOR: Final = 2.0
RETRY_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 2_000


class _Outcome(NamedTuple):
    """The outcome of the last ordered run of a query: its seconds, or None if it failed."""

    noted_at: float
    seconds: float | None


class TotalOrders:
    """The outcomes of the ordered runs of the last few thousand queries; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: OrderedDict[bytes, _Outcome] = OrderedDict()

    def seconds_at_once(self, job: Job) -> float | None:
        """Return the time limit of an ordered first run; None if the query's last answer was not ordered."""
        outcome = self._outcomes.get(_key(job))
        if outcome is None or outcome.seconds is None:
            return None
        return min(job.limits.seconds, max(_QUICK_SECONDS, _LIMIT_FACTOR * outcome.seconds))

    def seconds_after_cut(self, job: Job, engine_seconds: float) -> float | None:
        """Return the time limit of an ordered second run; None if such a run of the query failed a short while ago."""
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
        """Run the query without a total order the next time, because its answer is no longer cut off."""
        self._outcomes.pop(_key(job), None)


def _key(job: Job) -> bytes:
    """Return a digest of the statement and its caller, so that values of one caller do not affect answers of others."""
    request = job.request
    return blake2b(msgspec.msgpack.encode((job.question.statement.digest, request.account, request.pin_items))).digest()
