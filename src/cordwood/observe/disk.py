"""A forecast of when the disk will be full, from the trend of its free space, and the warnings about it."""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from cordwood.observe.observer import Tell

_WINDOW_SECONDS = 3600.0
# The WAL grows and shrinks by some 100 MB, so a shorter period shows no trend.
_LEAST_SECONDS = 300.0
_WARN_SECONDS = 24 * 3600.0
_AGAIN_SECONDS = 3600.0
_LEAST_FREE_BYTES = 256 * 10**6

ADVICE = "Shorten `retention` in the streams file, set limits.store_size, or give the data folder more room."


class Look(msgspec.Struct, frozen=True):
    """The free bytes at a monotonic time."""

    at: float
    free_bytes: float


class DiskForecast:
    """Samples `free_bytes` at each `look`; warnings are passed to `tell`."""

    def __init__(self, free_bytes: Callable[[], float], clock: Callable[[], float], tell: Tell) -> None:
        self._free_bytes = free_bytes
        self._clock = clock
        self._tell = tell
        self._looks: deque[Look] = deque()
        self._told_at = -math.inf
        self._told_seconds = math.inf
        self.seconds_left = math.inf

    def look(self) -> None:
        """Take a sample; call it at least once a minute."""
        now = self._clock()
        self._looks.append(Look(now, self._free_bytes()))
        while self._looks[0].at < now - _WINDOW_SECONDS:
            self._looks.popleft()
        self.seconds_left = seconds_left(tuple(self._looks))
        self._warn(now)

    def _warn(self, now: float) -> None:
        """Warn again after an hour, or when the remaining time has halved since the last warning."""
        is_low = self._looks[-1].free_bytes < _LEAST_FREE_BYTES
        if self.seconds_left > _WARN_SECONDS and not is_low:
            self._told_seconds = math.inf
            return
        if now - self._told_at >= _AGAIN_SECONDS or self.seconds_left < self._told_seconds / 2:
            self._told_at, self._told_seconds = now, self.seconds_left
            left = f"{self._looks[-1].free_bytes / 1e9:,.1f} GB are free."
            self._tell(f"{sentence(self.seconds_left)} {left} {ADVICE}")


def seconds_left(looks: tuple[Look, ...]) -> float:
    """Extrapolate by linear regression; infinity without a downward trend, or with too few samples."""
    if not looks or looks[-1].at - looks[0].at < _LEAST_SECONDS:
        return math.inf
    mid_at = sum(look.at for look in looks) / len(looks)
    mid_free = sum(look.free_bytes for look in looks) / len(looks)
    spread = sum((look.at - mid_at) ** 2 for look in looks)
    slope = sum((look.at - mid_at) * (look.free_bytes - mid_free) for look in looks) / spread
    return looks[-1].free_bytes / -slope if slope < 0 else math.inf


def sentence(seconds: float) -> str:
    if math.isinf(seconds):
        return "The disk is nearly full."
    return f"The disk is full in about {_span(seconds)} at the pace of the last hour."


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "a minute"
