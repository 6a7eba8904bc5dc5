"""How many events a second a stream takes, whoever sends them."""

import math
from collections.abc import Callable

import msgspec

from cordwood.errors import StreamRateExceeded
from cordwood.model.stream import Stream


class _Account(msgspec.Struct):
    """What may still be taken at once; below nothing when a body brought more than was left."""

    left: float
    counted_at: float


class Pace:
    """An account a stream, filled at its rate up to one second's worth; `clock` is in seconds.

    How many events a body holds is known only once it has been read, and half a body cannot be refused: a body that
    finds anything left is taken whole, and what it overdraws is made up for before the next one is.
    """

    def __init__(self, default_per_second: float | None, clock: Callable[[], float]) -> None:
        self._default = default_per_second
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def admit(self, stream: Stream) -> None:
        """StreamRateExceeded while more was taken than the rate gives."""
        rate = self._rate(stream)
        if rate is None:
            return
        left = self._account(stream.name, rate).left
        if left <= 0:
            raise StreamRateExceeded(
                f"The stream {stream.name} takes {_told(rate)}, and more were sent.",
                hint="Wait for as long as Retry-After says.",
                retry_after=max(1.0, -left / rate),
            )

    def charge(self, stream: Stream, events: int) -> None:
        rate = self._rate(stream)
        if rate is not None:
            self._account(stream.name, rate).left -= events

    def _rate(self, stream: Stream) -> float | None:
        return stream.events_per_second or self._default

    def _account(self, name: str, rate: float) -> _Account:
        now, most = self._clock(), max(1.0, rate)
        account = self._accounts.setdefault(name, _Account(most, now))
        account.left = min(most, account.left + (now - account.counted_at) * rate)
        account.counted_at = now
        return account


def _told(rate: float) -> str:
    return f"{rate:g} events a second" if rate >= 1 else f"an event in {math.ceil(1 / rate)} s"
