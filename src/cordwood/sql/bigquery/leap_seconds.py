"""Leap seconds: BigQuery reads a second 60 as the first of the next minute, and no engine reads it."""

import re
from datetime import datetime, timedelta
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.constants import CONSTANT, constant_text
from cordwood.sql.typing import inherit, kind_of

_KINDS: Final = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_CLOCK: Final = re.compile(r"(?:(\d{4})-(\d{1,2})-(\d{1,2})([ Tt]))?(\d{1,2}):(\d{1,2}):60(?:\.\d*)?(?!\d)")


def without_leap_second(value: exp.Expr, to: Kind) -> exp.Expr:
    """Return the cast's operand; a constant time with second 60 is respelled as the next minute."""
    spelled = constant_text(value)
    if spelled is None or ":60" not in spelled or to not in _KINDS or kind_of(value) is not Kind.STRING:
        return value
    told = _CLOCK.sub(_next_minute, spelled, count=1)
    made = inherit(exp.Literal.string(told), value)
    made.meta[CONSTANT] = told
    return made


def _next_minute(match: re.Match[str]) -> str:
    year, month, day, between, hour, minute = match.groups()
    try:
        begun = datetime(int(year or 2000), int(month or 1), int(day or 1), int(hour), int(minute))  # noqa: DTZ001 - a wall clock
        moment = begun + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return match[0]
    clock = moment.strftime("%H:%M:%S")
    return f"{moment.year:04d}-{moment:%m-%d}{between}{clock}" if year else clock
