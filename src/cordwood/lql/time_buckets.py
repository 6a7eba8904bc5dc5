"""The time buckets of a chart: the bucket that contains a time, and the starts of all buckets in a time window.

With a time zone, buckets of hours and longer units begin when a clock in this zone shows a whole unit. A day then has
23 or 25 hours when the clocks change, and is nevertheless one bucket. Buckets of seconds and minutes begin at whole
units of UTC.
"""

from typing import Final

from sqlglot import exp

from cordwood.lql.filters import TimeWindow, truncation_part
from cordwood.lql.query import TimeBucket, TimeUnit
from cordwood.sql.query_templates import alias_node, column_node, fill_query_template, make_identifier

BUCKET_COLUMN: Final = "bucket"

_UTC: Final = "UTC"
_CALENDAR_UNITS: Final = frozenset({TimeUnit.MONTH, TimeUnit.YEAR})
_UNITS_BEGINNING_IN_UTC: Final = frozenset({TimeUnit.SECOND, TimeUnit.MINUTE})
_INTERVAL_BY_UNIT: Final = {TimeUnit.WEEK: "7 DAY"}
# A local hour begins at a multiple of this interval, because the UTC offsets of all zones since 1972 are multiples of it.
_SHORTEST_STEP_BETWEEN_HOURS: Final = "15 MINUTE"


def bucket_start(time: exp.Expr, bucket: TimeBucket, zone: str) -> exp.Expr:
    """Return the expression that converts a time to the start of its bucket."""
    return fill_query_template(_bucket_template(bucket, zone), bucket.text_offset, time=time, zone=zone)


def bucket_starts(time_window: TimeWindow, bucket: TimeBucket, zone: str) -> exp.Select:
    """Return a SELECT with one row, the column `BUCKET_COLUMN`, for each bucket that begins or continues in a window.

    The window must have both ends.
    """
    assert time_window.start_bound is not None  # noqa: S101 # both ends were looked for
    assert time_window.end_bound is not None  # noqa: S101
    last = "@high" if time_window.end_bound.is_inclusive else "TIMESTAMP_SUB(@high, INTERVAL 1 MICROSECOND)"
    low = time_window.start_bound.time_expression
    high = fill_query_template(last, high=time_window.end_bound.time_expression)
    is_in_utc = _is_in_utc(bucket, zone)
    array_template, start_template = _utc_templates(bucket) if is_in_utc else _local_templates(bucket, zone)
    array = fill_query_template(array_template, low=low, high=high, zone=zone)
    start = fill_query_template(start_template, start=column_node(("start",)), zone=zone)
    unnest = exp.Unnest(expressions=[array], alias=exp.TableAlias(columns=[make_identifier("start")]), offset=False)
    query = exp.Select(expressions=[alias_node(start, BUCKET_COLUMN)]).from_(unnest, copy=False)
    # Two local starts may be the same time, because local times are skipped when the clocks are set forward.
    return query if is_in_utc else query.distinct(copy=False)


def _is_in_utc(bucket: TimeBucket, zone: str) -> bool:
    return zone == _UTC or bucket.unit in _UNITS_BEGINNING_IN_UTC


def _bucket_template(bucket: TimeBucket, zone: str) -> str:
    """Return the template of the start of the bucket that contains `@time`."""
    part, is_in_utc = truncation_part(bucket.unit), _is_in_utc(bucket, zone)
    if bucket.units_per_bucket == 1:
        return f"TIMESTAMP_TRUNC(@time, {part})" if is_in_utc else f"TIMESTAMP_TRUNC(@time, {part}, @zone)"
    if is_in_utc:
        return f"TIMESTAMP_BUCKET(@time, INTERVAL {_interval_of(bucket)})"
    return f"TIMESTAMP(DATETIME_BUCKET(DATETIME(@time, @zone), INTERVAL {_interval_of(bucket)}), @zone)"


def _utc_templates(bucket: TimeBucket) -> tuple[str, str]:
    """Return the templates of an array with an element for each bucket, and of the bucket's start for an element."""
    first, interval = _bucket_template(bucket, _UTC).replace("@time", "@low"), _interval_of(bucket)
    if bucket.unit in _CALENDAR_UNITS:
        return f"GENERATE_DATE_ARRAY(DATE({first}), DATE(@high), INTERVAL {interval})", "TIMESTAMP(@start)"
    return f"GENERATE_TIMESTAMP_ARRAY({first}, @high, INTERVAL {interval})", "@start"


def _local_templates(bucket: TimeBucket, zone: str) -> tuple[str, str]:
    """Return the templates like `_utc_templates`, for buckets that begin at whole units of a time zone.

    The elements of the array are local dates, or local times that are represented as times in UTC. Single hours are
    found from times in UTC, because a local hour may occur twice when the clocks are set back.
    """
    interval = _interval_of(bucket)
    if bucket.unit is TimeUnit.HOUR and bucket.units_per_bucket == 1:
        step = _SHORTEST_STEP_BETWEEN_HOURS
        array = f"GENERATE_TIMESTAMP_ARRAY(TIMESTAMP_BUCKET(@low, INTERVAL {step}), @high, INTERVAL {step})"
        return array, _bucket_template(bucket, zone).replace("@time", "@start")
    if bucket.unit is TimeUnit.HOUR:
        first = f"TIMESTAMP(DATETIME_BUCKET(DATETIME(@low, @zone), INTERVAL {interval}))"
        array = f"GENERATE_TIMESTAMP_ARRAY({first}, TIMESTAMP(DATETIME(@high, @zone)), INTERVAL {interval})"
        return array, "TIMESTAMP(DATETIME(@start), @zone)"
    first = (
        f"DATE_TRUNC(DATE(@low, @zone), {truncation_part(bucket.unit)})"
        if bucket.units_per_bucket == 1
        else f"DATE_BUCKET(DATE(@low, @zone), INTERVAL {interval})"
    )
    return f"GENERATE_DATE_ARRAY({first}, DATE(@high, @zone), INTERVAL {interval})", "TIMESTAMP(@start, @zone)"


def _interval_of(bucket: TimeBucket) -> str:
    return _INTERVAL_BY_UNIT.get(bucket.unit) or f"{bucket.units_per_bucket} {bucket.unit.upper()}"
