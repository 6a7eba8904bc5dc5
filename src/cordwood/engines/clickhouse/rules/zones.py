"""Time zones, given by name or offset: the wall clock of a time in a zone, and back."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once, timestamp_of, utc_wall_clock
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import unsupported
from cordwood.sql.rules.times import is_utc, offset_minutes


def wall_clock_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall clock in the zone at the given time."""
    if zone is None or is_utc(zone):
        return utc_wall_clock(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) + {offset * 60_000_000})", moment)
    template = (
        "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) + timeZoneOffset(toTimeZone(@a, @b)) * toInt64(1000000))"
    )
    return once(template, moment, _require_constant_zone(zone))


def first_timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which the zone shows the wall clock; the first one if clocks are set back."""
    if zone is None or is_utc(zone):
        return timestamp_of(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {offset * 60_000_000}, 'UTC')", wall)
    micros = fragment("toUnixTimestamp64Micro({0})", wall)
    return once(_FIRST_TIMESTAMP, micros, _require_constant_zone(zone))


def _offset_at(micros: str) -> str:
    return f"toInt64(timeZoneOffset(fromUnixTimestamp64Micro({micros}, @b))) * 1000000"


# Use the offset of the day before if it still holds at that time, or if clocks are set forward and skip the wall clock.
_BEFORE: Final = _offset_at("@a - 86400000000")
_AFTER: Final = _offset_at("@a + 86400000000")
_HOLDS_BEFORE: Final = f"{_offset_at(f'@a - {_BEFORE}')} = {_BEFORE}"
_NOT_YET_AFTER: Final = f"{_offset_at(f'@a - {_AFTER}')} != {_AFTER}"
_FIRST_TIMESTAMP: Final = (
    f"fromUnixTimestamp64Micro(@a - if({_HOLDS_BEFORE} OR {_NOT_YET_AFTER}, {_BEFORE}, {_AFTER}), 'UTC')"
)


def _require_constant_zone(zone: exp.Expr) -> exp.Expr:
    """Return the zone; refuse a column, because ClickHouse stores the zone in the type of a value."""
    if zone.find(exp.Column) is not None:
        unsupported(zone, "A time zone that is a column")
    return copied(zone)
