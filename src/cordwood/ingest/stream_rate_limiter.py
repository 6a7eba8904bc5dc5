"""The rate limit of a stream, in events per second over all senders."""

import math
from collections.abc import Callable

import msgspec

from cordwood.errors import StreamRateExceeded
from cordwood.model.definitions import Stream


class _TokenBucket(msgspec.Struct):
    """A token bucket. `left` is negative after a body with more events than there were tokens."""

    left: float
    counted_at: float


class StreamRateLimiter:
    """Token buckets by stream, each with the tokens of one second. `clock` is a monotonic clock in seconds.

    The number of events is known only after a body was decoded, and a body is accepted as a whole. So a body is
    accepted if any token is left, and the tokens that it overdraws delay the next body.
    """

    def __init__(self, default_per_second: float | None, clock: Callable[[], float]) -> None:
        self._default = default_per_second
        self._clock = clock
        self._accounts: dict[str, _TokenBucket] = {}

    def admit(self, stream: Stream) -> None:
        """Raise StreamRateExceeded if the bucket is empty or overdrawn."""
        rate = self._rate(stream)
        if rate is None:
            return
        left = self._account(stream.name, rate).left
        if left <= 0:
            raise StreamRateExceeded(
                f"The stream {stream.name} takes {_format_rate(rate)}, and more were sent.",
                hint="Wait for as long as Retry-After says.",
                retry_after=max(1.0, -left / rate),
            )

    def charge(self, stream: Stream, events: int) -> None:
        rate = self._rate(stream)
        if rate is not None:
            self._account(stream.name, rate).left -= events

    def _rate(self, stream: Stream) -> float | None:
        return stream.events_per_second or self._default

    def _account(self, name: str, rate: float) -> _TokenBucket:
        now, limit = self._clock(), max(1.0, rate)
        account = self._accounts.setdefault(name, _TokenBucket(limit, now))
        account.left = min(limit, account.left + (now - account.counted_at) * rate)
        account.counted_at = now
        return account


def _format_rate(rate: float) -> str:
    return f"{rate:g} events a second" if rate >= 1 else f"an event in {math.ceil(1 / rate)} s"
