"""Rate limits of keys: requests per second, and concurrent queries."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from cordwood.errors import RateExceeded
from cordwood.model.key import Caller

# The maximum number of remembered keys. The least recently used are forgotten, and later start with a full bucket.
MAX_REMEMBERED_KEYS = 10_000


class Allowance(msgspec.Struct, frozen=True):
    """The remaining budget of a key: `remaining` requests now, and all `quota` requests in `full_in_seconds`."""

    quota: int
    window_seconds: int
    remaining: int
    full_in_seconds: float


class _Bucket(msgspec.Struct):
    tokens: float
    filled_at: float


class RateLimiter:
    """Token buckets by account, each refilled at the rate of its key. `clock` is a monotonic clock in seconds.

    The account is a key, or an address for callers without a key.
    """

    def __init__(
        self, default_per_second: float | None, max_concurrent: int | None, clock: Callable[[], float]
    ) -> None:
        self._default = default_per_second
        self._max_concurrent = max_concurrent
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._running: dict[str, int] = {}

    def charge_request(self, caller: Caller, account: str) -> Allowance | None:
        """Take a token; return None if no rate applies, and raise RateExceeded if the bucket is empty."""
        rate = caller.rate_per_second or self._default
        if not rate:
            return None
        # A rate below one per second is a bucket of one token with a longer window.
        quota, window = (round(rate), 1) if rate >= 1 else (1, round(1 / rate))
        bucket = self._refill(account, rate, quota)
        if bucket.tokens < 1:
            raise RateExceeded(
                f"This key may send {quota} requests in {window} s.",
                hint="Wait for as long as Retry-After says.",
                retry_after=(1 - bucket.tokens) / rate,
            )
        bucket.tokens -= 1
        return Allowance(quota, window, int(bucket.tokens), (quota - bucket.tokens) / rate)

    @contextmanager
    def query_of(self, account: str) -> Iterator[None]:
        """Hold one of the account's concurrent queries while the block runs; raise RateExceeded if none is left."""
        running = self._running.get(account, 0)
        if self._max_concurrent is not None and running >= self._max_concurrent:
            raise RateExceeded(
                f"This key has {running} queries running, which is its limit.", hint="Wait for one to end."
            )
        self._running[account] = running + 1
        try:
            yield
        finally:
            self._release(account)

    def _release(self, account: str) -> None:
        self._running[account] -= 1
        if not self._running[account]:
            del self._running[account]

    def _refill(self, account: str, rate: float, quota: int) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(account)
        if bucket is None:
            bucket = self._buckets[account] = _Bucket(quota, now)
            if len(self._buckets) > MAX_REMEMBERED_KEYS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(account)
        bucket.tokens = min(quota, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket
