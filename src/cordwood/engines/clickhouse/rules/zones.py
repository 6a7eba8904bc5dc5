"""Time zones: a moment's wall clock in a zone and back, zones being names or offsets."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.words import instant, naive, once
from cordwood.sql.bigquery.zones import is_utc, offset_minutes
from cordwood.sql.fragment import fragment


def wall_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """What clocks in the zone show at the moment."""
    if zone is None or is_utc(zone):
        return naive(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) + {offset * 60_000_000})", moment)
    template = (
        "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) + timeZoneOffset(toTimeZone(@a, @b)) * toInt64(1000000))"
    )
    return once(template, moment, zone.copy())


def moment_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """The moment at which clocks in the zone show this."""
    if zone is None or is_utc(zone):
        return instant(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {offset * 60_000_000}, 'UTC')", wall)
    return fragment("toTimeZone(toDateTime64(toString({0}), 6, {1}), 'UTC')", wall, zone.copy())
