"""Conversion between datetimes, microseconds since 1970 UTC, and texts in ISO 8601."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def format_timestamp(micros: int) -> str:
    """Format a time in ISO 8601 with microseconds; raise OverflowError for a year outside of 1 to 9999."""
    return datetime_from_micros(micros).isoformat(timespec="microseconds")[:26] + "Z"


def parse_iso_time(text: str) -> datetime:
    """Parse a time in ISO 8601; raise ValueError for any other text, also for numbers of more than eight digits.

    `datetime.fromisoformat` accepts any character between the date and the time. It would read the number
    1796010112345, which is a time in milliseconds, as the time 23:45 of the day 1796-01-01.
    """
    if text[4:5] != "-" and len(text) > 8 and text[:9].isdigit():
        raise ValueError(f"{text[:40]!r} is a number, not a time in ISO 8601")
    return datetime.fromisoformat(text)


def now_us() -> int:
    return time.time_ns() // 1000
