"""Leap seconds: BigQuery reads a second 60 as the first of the next minute, and no engine reads it."""

import re
from datetime import datetime, timedelta
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.constants import CONSTANT, constant_text
from cordwood.sql.typing import inherit, kind_of

_KINDS_WITH_SECONDS: Final = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_CLOCK: Final = re.compile(r"(?:(\d{4})-(\d{1,2})-(\d{1,2})([ Tt]))?(\d{1,2}):(\d{1,2}):60(?:\.\d*)?(?!\d)")


def without_leap_second(value: exp.Expr, to: Kind) -> exp.Expr:
    """Return the cast's operand; a constant time with second 60 is respelled as the next minute."""
    text = constant_text(value)
    if text is None or ":60" not in text or to not in _KINDS_WITH_SECONDS or kind_of(value) is not Kind.STRING:
        return value
    respelled = _CLOCK.sub(_next_minute, text, count=1)
    literal = inherit(exp.Literal.string(respelled), value)
    literal.meta[CONSTANT] = respelled
    return literal


def _next_minute(match: re.Match[str]) -> str:
    year, month, day, separator, hour, minute = match.groups()
    try:
        written_minute = datetime(int(year or 2000), int(month or 1), int(day or 1), int(hour), int(minute))  # noqa: DTZ001 - a wall clock
        next_minute = written_minute + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return match[0]
    clock = next_minute.strftime("%H:%M:%S")
    return f"{next_minute.year:04d}-{next_minute:%m-%d}{separator}{clock}" if year else clock
