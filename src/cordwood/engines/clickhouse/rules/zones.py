"""Time zones: a moment's wall clock in a zone and back, zones being names or offsets."""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.words import instant, naive, once
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def wall_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """What clocks in the zone show at the moment."""
    name = constant_text(zone)
    if zone is None or (name is not None and name.upper() in _UTC):
        return naive(moment)
    offset = offset_minutes(name)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) + {offset * 60_000_000})", moment)
    template = (
        "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) + timeZoneOffset(toTimeZone(@a, @b)) * toInt64(1000000))"
    )
    return once(template, moment, zone.copy())


def moment_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """The moment at which clocks in the zone show this."""
    name = constant_text(zone)
    if zone is None or (name is not None and name.upper() in _UTC):
        return instant(wall)
    offset = offset_minutes(name)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {offset * 60_000_000}, 'UTC')", wall)
    return fragment("toTimeZone(toDateTime64(toString({0}), 6, {1}), 'UTC')", wall, zone.copy())


def offset_minutes(name: str | None) -> int | None:
    match = _OFFSET.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes
