"""Times and durations as clients of Loki send them."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from cordwood.errors import BadParameter
from cordwood.logql.quantities import read_duration
from cordwood.model.timestamps import EPOCH

SECOND_US: Final = 1_000_000
_MICROSECOND_NS: Final = 1000
# A number with at most as many digits is in seconds, a longer one in nanoseconds.
_MOST_SECONDS_DIGITS: Final = 10
_INTEGER: Final = re.compile(r"\d{1,19}", re.ASCII)
_FRACTION: Final = re.compile(r"\d{1,12}\.\d{0,20}", re.ASCII)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{0,20})?", re.ASCII)
_MAX_STEP_SECONDS: Final = 100 * 365 * 86_400
# The number of steps of a range without `step`.
_DEFAULT_STEPS: Final = 250
_SHOWN: Final = 60


class TimeRange(msgspec.Struct, frozen=True):
    """A range of time in nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    @property
    def start_us(self) -> int:
        """The first microsecond that is not before the start."""
        return -(-self.start_ns // _MICROSECOND_NS)

    @property
    def end_us(self) -> int:
        """The first microsecond that is not before the end."""
        return -(-self.end_ns // _MICROSECOND_NS)


def read_range(texts: Mapping[str, str], now_us: int, default_seconds: int) -> TimeRange:
    """Return the range of `start`, `end` and `since`; by default the last `default_seconds`."""
    now_ns = now_us * _MICROSECOND_NS
    end_ns = read_time("end", texts, now_ns)
    since_us = read_interval("since", texts, default_seconds * SECOND_US)
    start_ns = read_time("start", texts, min(end_ns, now_ns) - since_us * _MICROSECOND_NS)
    if end_ns < start_ns:
        raise BadParameter("end is before start.", hint="Send a later end.")
    return TimeRange(start_ns, end_ns)


def read_time(name: str, texts: Mapping[str, str], default_ns: int) -> int:
    """Return a time in nanoseconds: seconds or nanoseconds since 1970, or RFC 3339."""
    text = texts.get(name, "").strip()
    if not text:
        return default_ns
    if _INTEGER.fullmatch(text):
        return int(text) * (10**9 if len(text) <= _MOST_SECONDS_DIGITS else 1)
    if _FRACTION.fullmatch(text):
        seconds, _, fraction = text.partition(".")
        return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    match = _RFC3339.fullmatch(text)
    if match:
        try:
            time = datetime.fromisoformat(match[1].upper() + match[3].upper().replace("Z", "+00:00"))
        except ValueError:
            raise _bad_time(name, text) from None
        passed = time - EPOCH
        return (passed.days * 86_400 + passed.seconds) * 10**9 + int((match[2] or "").ljust(9, "0"))
    raise _bad_time(name, text)


def read_interval(name: str, texts: Mapping[str, str], default_us: int) -> int:
    """Return a duration in microseconds: `5m`, or a number of seconds."""
    text = texts.get(name, "").strip()
    if not text:
        return default_us
    seconds = float(text) if _NUMBER.fullmatch(text) else read_duration(text) if len(text) <= _SHOWN else None
    if seconds is None or not math.isfinite(seconds) or seconds > _MAX_STEP_SECONDS:
        raise BadParameter(f"{name} is {text[:_SHOWN]!r}.", hint="Write it as in 30s or 5m, or as a number of seconds.")
    return round(seconds * SECOND_US)


def read_step(texts: Mapping[str, str], time_range: TimeRange) -> int:
    """Return the step of a range in microseconds; by default one that gives at most 250 steps."""
    seconds = (time_range.end_ns - time_range.start_ns) // 10**9 // _DEFAULT_STEPS
    step_us = read_interval("step", texts, max(1, seconds) * SECOND_US)
    if step_us <= 0:
        raise BadParameter("step is 0.", hint="Write it as in 30s or 5m.")
    return step_us


def _bad_time(name: str, text: str) -> BadParameter:
    return BadParameter(
        f"{name} is {text[:_SHOWN]!r}.",
        hint="A time is a number of seconds or nanoseconds since 1970, or RFC 3339 as in 2026-01-31T12:00:00Z.",
    )
