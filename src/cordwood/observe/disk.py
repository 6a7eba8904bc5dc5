"""A forecast of the time until the disk is full, from the trend of its free space, and warnings to the operator."""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from cordwood.observe.observation import ReportOperatorMessage

_FORECAST_WINDOW_SECONDS = 3600.0
# No forecast is made from a shorter period: within minutes, the WAL grows and shrinks by some 100 MB, which hides the
# trend.
_MIN_SAMPLED_PERIOD_SECONDS = 300.0
_WARN_BELOW_REMAINING_SECONDS = 24 * 3600.0
_WARNING_INTERVAL_SECONDS = 3600.0
_WARN_BELOW_FREE_BYTES = 256 * 10**6

DISK_FULL_ADVICE = "Shorten `retention` in the streams file, set limits.store_size, or give the data folder more room."


class FreeSpaceSample(msgspec.Struct, frozen=True):
    """The number of free bytes on the disk at the time `taken_at`, which is in seconds of a monotonic clock."""

    taken_at: float
    free_bytes: float


class DiskForecast:
    """A forecast of the time until the disk is full.

    `free_bytes` is the function that `take_sample` calls to measure the free space. Warnings are passed to `report`.
    """

    def __init__(
        self, free_bytes: Callable[[], float], clock: Callable[[], float], report: ReportOperatorMessage
    ) -> None:
        self._measure_free_bytes = free_bytes
        self._clock = clock
        self._report_operator_message = report
        self._samples: deque[FreeSpaceSample] = deque()
        self._last_warned_at = -math.inf
        self._seconds_left_at_warning = math.inf
        self.seconds_until_full = math.inf

    def take_sample(self) -> None:
        """Measure the free space, update the forecast, and warn if necessary. Call this at least every minute."""
        now = self._clock()
        self._samples.append(FreeSpaceSample(now, self._measure_free_bytes()))
        while self._samples[0].taken_at < now - _FORECAST_WINDOW_SECONDS:
            self._samples.popleft()
        self.seconds_until_full = estimate_seconds_until_full(tuple(self._samples))
        self._warn_if_needed(now)

    def _warn_if_needed(self, now: float) -> None:
        """Warn if the disk is nearly full, or will be full within a day.

        If a warning was given within the last hour, warn again only if the remaining time has halved since then.
        """
        is_low = self._samples[-1].free_bytes < _WARN_BELOW_FREE_BYTES
        if self.seconds_until_full > _WARN_BELOW_REMAINING_SECONDS and not is_low:
            self._seconds_left_at_warning = math.inf
            return
        if (
            now - self._last_warned_at >= _WARNING_INTERVAL_SECONDS
            or self.seconds_until_full < self._seconds_left_at_warning / 2
        ):
            self._last_warned_at, self._seconds_left_at_warning = now, self.seconds_until_full
            free_text = f"{self._samples[-1].free_bytes / 1e9:,.1f} GB are free."
            self._report_operator_message(
                f"{describe_forecast(self.seconds_until_full)} {free_text} {DISK_FULL_ADVICE}"
            )


def estimate_seconds_until_full(samples: tuple[FreeSpaceSample, ...]) -> float:
    """Estimate the seconds until the disk is full, by a linear regression of the free space over time.

    Return infinity if the free space does not decrease, or if the samples cover too short a period.
    """
    if not samples or samples[-1].taken_at - samples[0].taken_at < _MIN_SAMPLED_PERIOD_SECONDS:
        return math.inf
    mean_time = sum(sample.taken_at for sample in samples) / len(samples)
    mean_free = sum(sample.free_bytes for sample in samples) / len(samples)
    spread = sum((sample.taken_at - mean_time) ** 2 for sample in samples)
    slope = sum((sample.taken_at - mean_time) * (sample.free_bytes - mean_free) for sample in samples) / spread
    return samples[-1].free_bytes / -slope if slope < 0 else math.inf


def describe_forecast(seconds: float) -> str:
    if math.isinf(seconds):
        return "The disk is nearly full."
    return f"The disk is full in about {_format_duration(seconds)} at the pace of the last hour."


def _format_duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "a minute"
