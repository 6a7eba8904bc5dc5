"""Moments as they are stored and sent, microseconds since 1970 in UTC, and as datetimes."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def now_us() -> int:
    return time.time_ns() // 1000
