"""Time zones: a moment's wall clock in a zone and back, zones being names or offsets."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.words import instant, naive, text
from cordwood.sql.bigquery.zones import is_utc, offset_minutes
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment


def wall_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """What clocks in the zone show at the moment."""
    if zone is None or is_utc(zone):
        return naive(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamp(epoch_us({{0}}) + {offset * 60_000_000})", moment)
    return fragment("timezone({0}, {1})", _name(zone), moment)


def moment_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """The moment at which clocks in the zone show this."""
    if zone is None or is_utc(zone):
        return instant(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamptz(epoch_us({{0}}) - {offset * 60_000_000})", wall)
    return fragment("timezone({0}, {1})", _name(zone), wall)


def _name(zone: exp.Expr) -> exp.Expr:
    name = constant_text(zone)
    return zone.copy() if name is None else text(name)
