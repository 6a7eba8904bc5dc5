"""Charts: aggregates by time bucket and by dimension, with empty buckets filled in."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax, UnknownName
from cordwood.lql.commands import PERCENTILE
from cordwood.lql.filters import NUMERIC, TIMESTAMP, Conditions
from cordwood.lql.known import Known
from cordwood.lql.query import Aggregate, Bucket, Order, Path, Query, Time, Unit
from cordwood.lql.windows import SECONDS, Bound, Window, truncation, window
from cordwood.model.datatype import Kind
from cordwood.sql.query_templates import alias, column, fill, identifier, number, ordered, table

# With more buckets than this, empty ones are not added, because they would make up most of the answer.
MAX_FILLED: Final = 10_000

_DEFAULT_UNIT: Final = Unit.MINUTE
_CALENDAR_UNITS: Final = frozenset({Unit.MONTH, Unit.YEAR})
_FILLED: Final = frozenset({"count", "countd", "sum"})
_OF_ANYTHING: Final = frozenset({"count", "countd"})
_OF_ORDERED: Final = frozenset({"min", "max"})
_MAY_HOLD_NUMBERS: Final = frozenset({Kind.VARIANT, Kind.STRING})
_CALLS: Final = {
    "count": "COUNT(@value)",
    "countd": "COUNT(DISTINCT @value)",
    "avg": "AVG(@value)",
    "sum": "SUM(@value)",
    "min": "MIN(@value)",
    "max": "MAX(@value)",
    "p50": "APPROX_QUANTILES(@value, 100)[OFFSET(50)]",
    "p95": "APPROX_QUANTILES(@value, 100)[OFFSET(95)]",
    "p99": "APPROX_QUANTILES(@value, 100)[OFFSET(99)]",
}
FILL_NOTICE: Final = "buckets without events are filled: count and sum with 0, other aggregates with null"
UNFILLED_NOTICE: Final = f"buckets without events are left out: there would be more than {MAX_FILLED}"


class Column(msgspec.Struct, frozen=True):
    """A column of a chart. `function` is None for a grouping column."""

    name: str
    value: exp.Expr
    function: str | None = None
    path: Path | None = None


def write_chart(query: Query, known: Known, conditions: Conditions) -> tuple[exp.Select, tuple[str, ...]]:
    unit = _unit(query)
    columns = _columns(query, known, conditions, unit)
    counted = _counted(query, known, conditions, columns)
    asked = _asked_window(query, conditions) if unit and not query.dimensions else None
    if asked is None or unit is None:
        return _in_order(counted, query, known, columns), ()
    bucket = query.buckets[0] if query.buckets else Bucket(unit)
    if asked.seconds is not None and asked.seconds / (SECONDS[unit] * bucket.count) > MAX_FILLED:
        return _in_order(counted, query, known, columns), (UNFILLED_NOTICE,)
    return _in_order(_filled(counted, columns, asked, bucket), query, known, columns), (FILL_NOTICE,)


def _unit(query: Query) -> Unit | None:
    """Return the unit of the buckets: a minute by default, None if the chart has only dimensions."""
    if query.buckets:
        return query.buckets[0].unit
    return None if query.dimensions else _DEFAULT_UNIT


def _columns(query: Query, known: Known, conditions: Conditions, unit: Unit | None) -> list[Column]:
    columns = []
    if unit is not None:
        bucket = query.buckets[0] if query.buckets else Bucket(unit)
        time = conditions.timestamp(Path((TIMESTAMP,), bucket.at))
        cut = fill(_bucketing(bucket), bucket.at, time=time)
        columns.append(Column(TIMESTAMP, cut))
    for path in (dimension.path for dimension in query.dimensions):
        columns += [Column(path.last, conditions.records.column(path), path=path)]
    aggregates = query.aggregates or (Aggregate("count", None),)
    for aggregate in aggregates:
        name = _name(aggregate, alone=len(aggregates) == 1)
        columns.append(Column(name, _call(aggregate, known, conditions), aggregate.function, aggregate.path))
    return _checked(columns, known)


def _bucketing(bucket: Bucket) -> str:
    """Return the template of the start of a time's bucket."""
    if bucket.count == 1:
        return f"TIMESTAMP_TRUNC(@time, {truncation(bucket.unit)})"
    return f"TIMESTAMP_BUCKET(@time, INTERVAL {bucket.count} {bucket.unit.upper()})"


def _name(aggregate: Aggregate, *, alone: bool) -> str:
    function = aggregate.function.replace(".", "_")
    if alone or aggregate.path is None:
        return function
    return f"{function}_{aggregate.path.last}"


def _checked(columns: list[Column], known: Known) -> list[Column]:
    names: set[str] = set()
    for made in columns:
        if made.name.lower() in names:
            at = made.path.at if made.path else 0
            raise QuerySyntax(f"Two columns of the chart are called {made.name}.", span=known.span(at))
        names.add(made.name.lower())
    return columns


def _call(aggregate: Aggregate, known: Known, conditions: Conditions) -> exp.Expr:
    if aggregate.path is None:
        return fill("COUNT(*)", aggregate.at)
    value = conditions.records.column(aggregate.path)
    if _reads_numbers(aggregate, aggregate.path, known):
        value = fill("SAFE_CAST(@value AS FLOAT64)", aggregate.at, value=value)
    return fill(_CALLS.get(aggregate.function) or _percentile(aggregate.function), aggregate.at, value=value)


def _percentile(function: str) -> str:
    """Return the call of a percentile: `p99.9` is the 999th of 1000 quantiles."""
    found = PERCENTILE.fullmatch(function)
    assert found is not None  # noqa: S101 # the parser has let it through
    if found[2]:
        return f"APPROX_QUANTILES(@value, 1000)[OFFSET({int(found[1] + found[2])})]"
    return f"APPROX_QUANTILES(@value, 100)[OFFSET({int(found[1])})]"


def _reads_numbers(aggregate: Aggregate, path: Path, known: Known) -> bool:
    """Return whether the value must be converted to a number, because an event's field may have any type."""
    kind = known.kind(path)
    if aggregate.function in _OF_ANYTHING or kind in NUMERIC:
        return False
    if aggregate.function in _OF_ORDERED:
        return kind is Kind.VARIANT
    if kind in _MAY_HOLD_NUMBERS:
        return True
    raise QuerySyntax(
        f"{aggregate.function} is of numbers, and {path.last} is a {kind}.",
        hint="It can be counted, and it has a min and a max.",
        span=known.span(aggregate.at),
    )


def _counted(query: Query, known: Known, conditions: Conditions, columns: list[Column]) -> exp.Select:
    selected = [alias(made.value, made.name) for made in columns]
    tree = exp.Select(expressions=selected).from_(table(known.sub_query), copy=False)
    kept = conditions.all(query.filter)
    conditions.records.join_into(tree)
    if kept is not None:
        tree.where(kept, copy=False)
    grouped = [exp.Literal.number(place) for place, made in enumerate(columns, 1) if made.function is None]
    return tree.group_by(*grouped, copy=False)


def _asked_window(query: Query, conditions: Conditions) -> Window | None:
    """Return the window in which all events must be; None unless the query sets both of its ends."""
    windows = [window(part, conditions.zone) for part in query.filter.filters if isinstance(part, Time)]
    lows = [asked.low for asked in windows if asked.low]
    highs = [asked.high for asked in windows if asked.high]
    if not lows or not highs:
        return None
    low = Bound(_outermost("GREATEST", lows), is_within=True)
    high = Bound(_outermost("LEAST", highs), is_within=all(end.is_within for end in highs))
    return Window(low, high, _shortest(windows) or _between(lows, highs))


def _shortest(windows: list[Window]) -> float | None:
    return min((asked.seconds for asked in windows if asked.seconds is not None), default=None)


def _between(lows: list[Bound], highs: list[Bound]) -> float | None:
    """Return the seconds from the latest start to the earliest end, of bounds that do not depend on the clock."""
    begins = [bound.moment for bound in lows if bound.moment]
    ends = [bound.moment for bound in highs if bound.moment]
    return (min(ends) - max(begins)).total_seconds() if begins and ends else None


def _outermost(function: str, bounds: list[Bound]) -> exp.Expr:
    if len(bounds) == 1:
        return bounds[0].time
    made = fill(f"{function}(@first, @second)", first=bounds[0].time, second=bounds[1].time)
    for bound in bounds[2:]:
        made = fill(f"{function}(@made, @next)", made=made, next=bound.time)
    return made


def _filled(counted: exp.Select, columns: list[Column], asked: Window, made_of: Bucket) -> exp.Select:
    """Return a query for every bucket of the window with its aggregates."""
    selected = [alias(column(("buckets", "bucket")), TIMESTAMP)]
    for made in columns[1:]:
        value = column(("counted", made.name))
        filled = fill("IFNULL(@value, 0)", value=value) if made.function in _FILLED else value
        selected.append(alias(filled, made.name))
    start = alias(_bucket(made_of.unit), "bucket")
    buckets = exp.Select(expressions=[start]).from_(_buckets(asked, made_of), copy=False)
    tree = exp.Select(expressions=selected).from_(buckets.subquery("buckets", copy=False), copy=False)
    same = fill("@counted = @bucket", counted=column(("counted", TIMESTAMP)), bucket=column(("buckets", "bucket")))
    return tree.join(counted.subquery("counted", copy=False), on=same, join_type="LEFT", copy=False)


def _bucket(unit: Unit) -> exp.Expr:
    return fill("TIMESTAMP(start)") if unit in _CALENDAR_UNITS else column(("start",))


def _buckets(asked: Window, made_of: Bucket) -> exp.Expr:
    unit = made_of.unit
    assert asked.low is not None  # noqa: S101 # both ends were looked for
    assert asked.high is not None  # noqa: S101
    low = fill(_bucketing(made_of), time=asked.low.time)
    last = "@high" if asked.high.is_within else "TIMESTAMP_SUB(@high, INTERVAL 1 MICROSECOND)"
    high = fill(last, high=asked.high.time)
    if unit in _CALENDAR_UNITS:
        array = fill(f"GENERATE_DATE_ARRAY(DATE(@low), DATE(@high), INTERVAL 1 {unit.upper()})", low=low, high=high)
    else:
        step = "7 DAY" if unit is Unit.WEEK else f"{made_of.count} {unit.upper()}"
        array = fill(f"GENERATE_TIMESTAMP_ARRAY(@low, @high, INTERVAL {step})", low=low, high=high)
    return exp.Unnest(expressions=[array], alias=exp.TableAlias(columns=[identifier("start")]), offset=False)


def _in_order(tree: exp.Select, query: Query, known: Known, columns: list[Column]) -> exp.Select:
    """Return the query in the requested order; by default by time, or without time by the largest value."""
    if query.orders:
        return tree.order_by(*[_ordered(order, known, columns) for order in query.orders], copy=False)
    grouped = [place for place, made in enumerate(columns, 1) if made.function is None]
    places = [(place, False) for place in grouped]
    if columns[0].path is not None:
        places = [(len(grouped) + 1, True), *places]
    return tree.order_by(*[ordered(number(str(place)), desc) for place, desc in places], copy=False)


def _ordered(order: Order, known: Known, columns: list[Column]) -> exp.Expr:
    wanted = TIMESTAMP if order.path.parts == ("t",) else order.path.last
    for place, made in enumerate(columns, 1):
        if made.path == order.path and made.function is None:
            return ordered(number(str(place)), order.is_descending)
        if len(order.path.parts) == 1 and made.name.lower() == wanted.lower():
            return ordered(number(str(place)), order.is_descending)
    names = ", ".join(made.name for made in columns)
    raise UnknownName(
        f"The chart has no column {wanted[:60]}.", hint=f"It has: {names}.", span=known.span(order.path.at)
    )
