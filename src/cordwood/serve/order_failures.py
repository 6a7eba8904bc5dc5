"""Total orders of answers that are cut: how long one may take, and the queries for which it failed a while ago.

The rows of groups, unions and other queries without ids are put into a total order only once an answer is cut. Then the
query is run again, ordered by the columns of the answer. That may cost far more than a run that stops at its limit, and
may fail at a row that was not reached before.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from cordwood.serve.jobs import Job

# An ordered run may take this long, or `_FACTOR` times what the run that was cut took.
_QUICK_SECONDS: Final = 1.0
_FACTOR: Final = 2.0
RETRY_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 2_000


def seconds_to_order(job: Job, engine_seconds: float) -> float:
    """Return the time limit of the ordered run of a job whose answer was cut after `engine_seconds`."""
    return min(job.limits.seconds - engine_seconds, max(_QUICK_SECONDS, _FACTOR * engine_seconds))


class OrderFailures:
    """The most recent few thousand queries for which it failed; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed_at: OrderedDict[bytes, float] = OrderedDict()

    def is_recent(self, job: Job) -> bool:
        failed_at = self._failed_at.get(_key(job))
        return failed_at is not None and self._clock() - failed_at < RETRY_SECONDS

    def add(self, job: Job) -> None:
        self._failed_at[_key(job)] = self._clock()
        self._failed_at.move_to_end(_key(job))
        if len(self._failed_at) > _MAX_REMEMBERED:
            self._failed_at.popitem(last=False)


def _key(job: Job) -> bytes:
    """Return a digest of the statement and the pins: the events of two projects differ in number."""
    return blake2b(msgspec.msgpack.encode((job.question.statement.digest, job.request.pin_items))).digest()
