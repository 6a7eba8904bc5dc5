"""How much one key may ask: so many requests a second, so many queries at once."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from cordwood.errors import RateExceeded
from cordwood.model.caller import Caller

# Keys that have not asked for longest are forgotten beyond this many; their next request starts with a full bucket.
REMEMBERED_KEYS = 10_000


class Allowance(msgspec.Struct, frozen=True):
    """What a key has left: `remaining` requests at once, and in how many seconds it has them all again."""

    quota: int
    window_seconds: int
    remaining: int
    full_in_seconds: float


class _Bucket(msgspec.Struct):
    tokens: float
    filled_at: float


class Rates:
    """A bucket a key, filled at the key's own rate; `clock` is in seconds and only its differences count."""

    def __init__(self, default_per_second: float | None, at_once: int | None, clock: Callable[[], float]) -> None:
        self._default = default_per_second
        self._at_once = at_once
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._running: dict[str, int] = {}

    def take(self, caller: Caller) -> Allowance | None:
        """One request of the key's rate; None where no rate applies, RateExceeded where it is used up."""
        rate = caller.rate_per_second or self._default
        if not rate:
            return None
        # A rate below one a second still lets one through at a time.
        quota, window = (round(rate), 1) if rate >= 1 else (1, round(1 / rate))
        bucket = self._filled(caller.key_id, rate, quota)
        if bucket.tokens < 1:
            raise RateExceeded(
                f"This key may send {quota} requests in {window} s.",
                hint="Wait for as long as Retry-After says.",
                retry_after=(1 - bucket.tokens) / rate,
            )
        bucket.tokens -= 1
        return Allowance(quota, window, int(bucket.tokens), (quota - bucket.tokens) / rate)

    @contextmanager
    def query_of(self, caller: Caller) -> Iterator[None]:
        """One of the queries that the key may have under way at once."""
        running = self._running.get(caller.key_id, 0)
        if self._at_once is not None and running >= self._at_once:
            raise RateExceeded(
                f"This key has {running} queries under way, as many as it may.", hint="Wait for one to end."
            )
        self._running[caller.key_id] = running + 1
        try:
            yield
        finally:
            self._release(caller.key_id)

    def _release(self, key_id: str) -> None:
        self._running[key_id] -= 1
        if not self._running[key_id]:
            del self._running[key_id]

    def _filled(self, key_id: str, rate: float, quota: int) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(key_id)
        if bucket is None:
            bucket = self._buckets[key_id] = _Bucket(quota, now)
            if len(self._buckets) > REMEMBERED_KEYS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key_id)
        bucket.tokens = min(quota, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket
