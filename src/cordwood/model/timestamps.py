"""Conversion between datetimes and microseconds since 1970 UTC."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def format_timestamp(micros: int) -> str:
    """Format a time in ISO 8601 with microseconds; raise OverflowError for a year outside of 1 to 9999."""
    return datetime_from_micros(micros).isoformat(timespec="microseconds")[:26] + "Z"


def now_us() -> int:
    return time.time_ns() // 1000
