"""Time zones, given by name or offset: the wall clock of a time in a zone, and back."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import once, text, timestamp_of, utc_wall_clock
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.rules.times import is_utc, offset_minutes, repeated_minutes

# A zone that is known only at run time: DuckDB has zones by name only, so an offset becomes UTC and a shift.
_IS_OFFSET: Final = "regexp_matches(@b, '^(?i:utc|gmt)?[+-]')"
_ZONE_NAME: Final = f"CASE WHEN {_IS_OFFSET} THEN 'UTC' ELSE @b END"
_TWO_DIGITS: Final = r"regexp_replace(regexp_extract(@b, '[+-].*'), '^(.)(\d)(:|$)', '\10\2\3')"
_SHIFT: Final = (
    f"CASE WHEN {_IS_OFFSET} THEN 946684800000000 - epoch_us(('2000-01-01 00:00' || {_TWO_DIGITS})::TIMESTAMPTZ)"
    " ELSE 0 END"
)


def wall_clock_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall clock in the zone at the given time."""
    if zone is None or is_utc(zone):
        return utc_wall_clock(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamp(epoch_us({{0}}) + {offset * 60_000_000})", moment)
    name = constant_text(zone)
    if name is None:
        return once(f"timezone({_ZONE_NAME}, make_timestamptz(epoch_us(@a) + {_SHIFT}))", moment, copied(zone))
    return fragment("timezone({0}, {1})", text(name), moment)


def first_timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which the zone shows the wall clock; the first one if clocks are set back."""
    if zone is None or is_utc(zone) or offset_minutes(zone) is not None:
        return timestamp_in(wall, zone)
    name = constant_text(zone)
    repeated_us = repeated_minutes(zone) * 60_000_000
    earlier_sql = f"make_timestamptz(epoch_us(@a) - {repeated_us})"
    wall_clock = f"timezone(@c, {earlier_sql})"
    if name is None:
        zone_name, shift = (template.replace("@b", "@c") for template in (_ZONE_NAME, _SHIFT))
        wall_clock = f"timezone({zone_name}, make_timestamptz(epoch_us(@a) - {repeated_us} + {shift}))"
    first = f"CASE WHEN {wall_clock} = @b THEN {earlier_sql} ELSE @a END"
    return once(first, timestamp_in(wall, zone), copied(wall), copied(zone) if name is None else text(name))


def timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time of a wall clock that is unlikely to occur twice, such as the start of a day."""
    if zone is None or is_utc(zone):
        return timestamp_of(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamptz(epoch_us({{0}}) - {offset * 60_000_000})", wall)
    name = constant_text(zone)
    if name is None:
        return once(f"make_timestamptz(epoch_us(timezone({_ZONE_NAME}, @a)) - {_SHIFT})", wall, copied(zone))
    return fragment("timezone({0}, {1})", text(name), wall)
