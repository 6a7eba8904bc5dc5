"""Time zones, given by name or offset: the wall clock of a time in a zone, and back."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.words import instant, naive, once, text
from cordwood.sql.bigquery.zones import is_utc, offset_minutes, repeated_minutes
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment

# A zone that is known only at run time: DuckDB has zones by name only, so an offset becomes UTC and a shift.
_IS_OFFSET: Final = "regexp_matches(@b, '^(?i:utc|gmt)?[+-]')"
_PLACE: Final = f"CASE WHEN {_IS_OFFSET} THEN 'UTC' ELSE @b END"
_TWO_DIGITS: Final = r"regexp_replace(regexp_extract(@b, '[+-].*'), '^(.)(\d)(:|$)', '\10\2\3')"
_SHIFT: Final = (
    f"CASE WHEN {_IS_OFFSET} THEN 946684800000000 - epoch_us(('2000-01-01 00:00' || {_TWO_DIGITS})::TIMESTAMPTZ)"
    " ELSE 0 END"
)


def wall_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall clock in the zone at the given time."""
    if zone is None or is_utc(zone):
        return naive(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamp(epoch_us({{0}}) + {offset * 60_000_000})", moment)
    name = constant_text(zone)
    if name is None:
        return once(f"timezone({_PLACE}, make_timestamptz(epoch_us(@a) + {_SHIFT}))", moment, copied(zone))
    return fragment("timezone({0}, {1})", text(name), moment)


def moment_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which the zone shows the wall clock; the first one if clocks are set back."""
    if zone is None or is_utc(zone) or offset_minutes(zone) is not None:
        return start_in(wall, zone)
    name = constant_text(zone)
    back = repeated_minutes(zone) * 60_000_000
    earlier = f"make_timestamptz(epoch_us(@a) - {back})"
    shown = f"timezone(@c, {earlier})"
    if name is None:
        place, shift = (template.replace("@b", "@c") for template in (_PLACE, _SHIFT))
        shown = f"timezone({place}, make_timestamptz(epoch_us(@a) - {back} + {shift}))"
    first = f"CASE WHEN {shown} = @b THEN {earlier} ELSE @a END"
    return once(first, start_in(wall, zone), copied(wall), copied(zone) if name is None else text(name))


def start_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time of a wall clock that is unlikely to occur twice, such as the start of a day."""
    if zone is None or is_utc(zone):
        return instant(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamptz(epoch_us({{0}}) - {offset * 60_000_000})", wall)
    name = constant_text(zone)
    if name is None:
        return once(f"make_timestamptz(epoch_us(timezone({_PLACE}, @a)) - {_SHIFT})", wall, copied(zone))
    return fragment("timezone({0}, {1})", text(name), wall)
