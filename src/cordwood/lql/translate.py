"""Translation of an LQL query to the equivalent SELECT, which returns events or the aggregates of a chart."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import BadQuerySyntax, UnknownNameInQuery
from cordwood.lql.columns import RecordUnnests, SubQueryInfo
from cordwood.lql.filters import (
    NUMERIC_KINDS,
    SECONDS_PER_UNIT,
    TIMESTAMP_COLUMN,
    FilterTranslator,
    TimeBound,
    TimeWindow,
    time_window_of,
)
from cordwood.lql.parse import PERCENTILE_NAME_PATTERN
from cordwood.lql.query import (
    Aggregate,
    EventFieldPath,
    LqlQuery,
    SelectedColumn,
    SortKey,
    TimeBucket,
    TimeCondition,
    TimeUnit,
)
from cordwood.lql.time_buckets import BUCKET_COLUMN, bucket_start, bucket_starts
from cordwood.model.datatype import Kind
from cordwood.sql.query_templates import (
    alias_node,
    column_node,
    fill_query_template,
    make_identifier,
    number_literal,
    sort_key,
)

DEFAULT_OUTPUT_COLUMNS: Final = ("id", TIMESTAMP_COLUMN, "event_message")


class TranslatedQuery(msgspec.Struct, frozen=True):
    """A translated query (a SELECT), with notices for the caller about the answer."""

    tree: exp.Select
    notices: tuple[str, ...] = ()


def translate_query(query: LqlQuery, info: SubQueryInfo, zone: str, *, is_ordered: bool = True) -> TranslatedQuery:
    """Translate a query; raise UnknownNameInQuery, BadQueryValue or BadQuerySyntax if it does not fit the columns.

    If `is_ordered` is set and the query requests no order, the newest rows come first.
    """
    conditions = FilterTranslator(info, zone, RecordUnnests(info, _renaming_names(query)))
    if query.is_chart:
        if query.columns:
            raise BadQuerySyntax(
                "s: and c: cannot be said together.",
                hint="A chart has its own columns: leave s: out, or group by the path with c:group_by(…).",
                span=info.query_text_span(query.columns[0].text_offset),
            )
        tree, notices = _translate_chart(query, info, conditions)
    else:
        tree, notices = _translate_row_query(query, info, conditions, is_ordered=is_ordered), ()
    if query.limit:
        tree = tree.limit(number_literal(str(query.limit.rows), query.limit.text_offset), copy=False)
    return TranslatedQuery(tree, notices)


def _translate_row_query(
    query: LqlQuery, info: SubQueryInfo, conditions: FilterTranslator, *, is_ordered: bool
) -> exp.Select:
    columns = _output_columns(query, info, conditions.unnests)
    tree = exp.Select(expressions=columns).from_(conditions.unnests.sub_query_table(), copy=False)
    condition = conditions.translate_all(query.filter)
    requested = _requested_or_default_sort_keys(query, info) if is_ordered else query.sort_keys
    orders = [_order_by_expression(order, conditions.unnests) for order in requested]
    conditions.unnests.add_joins(tree)
    if condition is not None:
        tree.where(condition, copy=False)
    return tree.order_by(*orders, copy=False) if orders else tree


def _requested_or_default_sort_keys(query: LqlQuery, info: SubQueryInfo) -> tuple[SortKey, ...]:
    """Return the requested sort keys; without any, sort by time, the newest events first."""
    if query.sort_keys or not info.has_column(TIMESTAMP_COLUMN):
        return query.sort_keys
    return (SortKey(EventFieldPath((TIMESTAMP_COLUMN,)), is_descending=True),)


def _order_by_expression(order: SortKey, unnests: RecordUnnests) -> exp.Expr:
    return sort_key(unnests.sort_column_at(order.path), order.is_descending)


def _renaming_names(query: LqlQuery) -> frozenset[str]:
    """Return the names, in lower case, of output columns that are not the sub-query's columns of the same names."""
    outputs = ((column.output_name.lower(), column.path) for column in query.columns if column.path is not None)
    return frozenset(name for name, path in outputs if tuple(map(str.lower, path.steps)) != (name,))


def _output_columns(query: LqlQuery, info: SubQueryInfo, unnests: RecordUnnests) -> list[exp.Expr]:
    if query.columns:
        return _selected_columns(query.columns, info, unnests)
    if all(info.has_column(name) for name in DEFAULT_OUTPUT_COLUMNS):
        return [unnests.column_at(EventFieldPath((name,))) for name in DEFAULT_OUTPUT_COLUMNS]
    return [_star_of_sub_query(unnests, 0)]


def _star_of_sub_query(unnests: RecordUnnests, offset: int) -> exp.Expr:
    """Return `sub_query.*`. A bare `*` would also return the columns of the UNNEST joins."""
    star = fill_query_template("*", offset)
    return exp.Column(this=star, table=make_identifier(unnests.sub_query_alias, offset))


def _selected_columns(
    selected: tuple[SelectedColumn, ...], info: SubQueryInfo, unnests: RecordUnnests
) -> list[exp.Expr]:
    names: dict[str, int] = {}
    columns: list[exp.Expr] = []
    seen_columns: set[SelectedColumn] = set()
    for selected_column in selected:
        if selected_column.path is None:
            columns.append(_star_of_sub_query(unnests, selected_column.text_offset))
            continue
        if selected_column in seen_columns:
            continue
        seen_columns.add(selected_column)
        name = selected_column.output_name
        _register_unique_column_name(name, names, selected_column, info)
        column = unnests.column_at(selected_column.path)
        columns.append(column if column.name == name else alias_node(column, name, selected_column.text_offset))
    return columns


def _register_unique_column_name(
    name: str, names: dict[str, int], selected_column: SelectedColumn, info: SubQueryInfo
) -> None:
    if name.lower() in names:
        raise BadQuerySyntax(
            f"Two columns are called {name}.",
            hint=f"Name one of them, as in s:{name}@other.",
            span=info.query_text_span(selected_column.text_offset),
        )
    names[name.lower()] = selected_column.text_offset


# If the time window of a chart has more buckets than this, empty buckets are not added, because most rows of the answer
# would be empty.
MAX_FILLED_BUCKETS: Final = 10_000

_DEFAULT_BUCKET_UNIT: Final = TimeUnit.MINUTE
_FUNCTIONS_ZERO_IN_EMPTY_BUCKETS: Final = frozenset({"count", "countd", "sum"})
_FUNCTIONS_ACCEPTING_ANY_TYPE: Final = frozenset({"count", "countd"})
_FUNCTIONS_ACCEPTING_ORDERED_TYPES: Final = frozenset({"min", "max"})
_KINDS_CONVERTIBLE_TO_NUMBER: Final = frozenset({Kind.VARIANT, Kind.STRING})
_SQL_TEMPLATE_BY_AGGREGATE_FUNCTION: Final = {
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
EMPTY_BUCKETS_FILLED_NOTICE: Final = (
    "buckets without events are filled: count and sum with 0, other aggregates with null"
)
EMPTY_BUCKETS_OMITTED_NOTICE: Final = (
    f"buckets without events are left out: there would be more than {MAX_FILLED_BUCKETS}"
)


class ChartColumn(msgspec.Struct, frozen=True):
    """A column of a chart: an aggregate or, if `aggregate_function_name` is None, a time bucket or a dimension."""

    name: str
    value_expression: exp.Expr
    aggregate_function_name: str | None = None
    path: EventFieldPath | None = None


def _translate_chart(
    query: LqlQuery, info: SubQueryInfo, conditions: FilterTranslator
) -> tuple[exp.Select, tuple[str, ...]]:
    unit = _bucket_unit(query)
    columns = _chart_columns(query, info, conditions, unit)
    aggregated = _build_aggregate_query(query, conditions, columns)
    time_window = _query_time_window(query, conditions) if unit and not query.dimensions else None
    if time_window is None or unit is None:
        return _add_sort_keys(aggregated, query, info, columns), ()
    bucket = query.time_buckets[0] if query.time_buckets else TimeBucket(unit)
    if (
        time_window.approximate_seconds is not None
        and time_window.approximate_seconds / (SECONDS_PER_UNIT[unit] * bucket.units_per_bucket) > MAX_FILLED_BUCKETS
    ):
        return _add_sort_keys(aggregated, query, info, columns), (EMPTY_BUCKETS_OMITTED_NOTICE,)
    buckets = bucket_starts(time_window, bucket, conditions.time_zone)
    filled = _fill_empty_buckets(aggregated, columns, buckets)
    return _add_sort_keys(filled, query, info, columns), (EMPTY_BUCKETS_FILLED_NOTICE,)


def _bucket_unit(query: LqlQuery) -> TimeUnit | None:
    """Return the unit of the time buckets; None if the chart is grouped by dimensions only.

    Without any grouping, a chart has buckets of one minute.
    """
    if query.time_buckets:
        return query.time_buckets[0].unit
    return None if query.dimensions else _DEFAULT_BUCKET_UNIT


def _chart_columns(
    query: LqlQuery, info: SubQueryInfo, conditions: FilterTranslator, unit: TimeUnit | None
) -> list[ChartColumn]:
    columns = []
    if unit is not None:
        bucket = query.time_buckets[0] if query.time_buckets else TimeBucket(unit)
        time = conditions.timestamp_column(EventFieldPath((TIMESTAMP_COLUMN,), bucket.text_offset))
        columns.append(ChartColumn(TIMESTAMP_COLUMN, bucket_start(time, bucket, conditions.time_zone)))
    for path in (dimension.path for dimension in query.dimensions):
        columns += [ChartColumn(path.last_step, conditions.unnests.column_at(path), path=path)]
    aggregates = query.aggregates or (Aggregate("count", None),)
    for aggregate in aggregates:
        name = _aggregate_name(aggregate, alone=len(aggregates) == 1)
        columns.append(
            ChartColumn(
                name, _aggregate_call(aggregate, info, conditions), aggregate.function_name, aggregate.argument_path
            )
        )
    return _check_distinct_names(columns, info)


def _aggregate_name(aggregate: Aggregate, *, alone: bool) -> str:
    function = aggregate.function_name.replace(".", "_")
    if alone or aggregate.argument_path is None:
        return function
    return f"{function}_{aggregate.argument_path.last_step}"


def _check_distinct_names(columns: list[ChartColumn], info: SubQueryInfo) -> list[ChartColumn]:
    names: set[str] = set()
    for chart_column in columns:
        if chart_column.name.lower() in names:
            offset = chart_column.path.text_offset if chart_column.path else 0
            raise BadQuerySyntax(
                f"Two columns of the chart are called {chart_column.name}.", span=info.query_text_span(offset)
            )
        names.add(chart_column.name.lower())
    return columns


def _aggregate_call(aggregate: Aggregate, info: SubQueryInfo, conditions: FilterTranslator) -> exp.Expr:
    if aggregate.argument_path is None:
        return fill_query_template("COUNT(*)", aggregate.text_offset)
    value = conditions.unnests.column_at(aggregate.argument_path)
    if _must_convert_to_number(aggregate, aggregate.argument_path, info):
        value = fill_query_template("SAFE_CAST(@value AS FLOAT64)", aggregate.text_offset, value=value)
    return fill_query_template(
        _SQL_TEMPLATE_BY_AGGREGATE_FUNCTION.get(aggregate.function_name)
        or _percentile_template(aggregate.function_name),
        aggregate.text_offset,
        value=value,
    )


def _percentile_template(function: str) -> str:
    """Return the SQL template of a percentile: `p99.9` takes number 999 of 1000 quantiles."""
    match = PERCENTILE_NAME_PATTERN.fullmatch(function)
    assert match is not None  # noqa: S101 # the parser has let it through
    if match[2]:
        return f"APPROX_QUANTILES(@value, 1000)[OFFSET({int(match[1] + match[2])})]"
    return f"APPROX_QUANTILES(@value, 100)[OFFSET({int(match[1])})]"


def _must_convert_to_number(aggregate: Aggregate, path: EventFieldPath, info: SubQueryInfo) -> bool:
    """Return whether an aggregate must convert its values to numbers; raise BadQuerySyntax if their type forbids it."""
    kind = info.kind_of_path(path)
    if aggregate.function_name in _FUNCTIONS_ACCEPTING_ANY_TYPE or kind in NUMERIC_KINDS:
        return False
    if aggregate.function_name in _FUNCTIONS_ACCEPTING_ORDERED_TYPES:
        return kind is Kind.VARIANT
    if kind in _KINDS_CONVERTIBLE_TO_NUMBER:
        return True
    raise BadQuerySyntax(
        f"{aggregate.function_name} is of numbers, and {path.last_step} is a {kind}.",
        hint="It can be counted, and it has a min and a max.",
        span=info.query_text_span(aggregate.text_offset),
    )


def _build_aggregate_query(query: LqlQuery, conditions: FilterTranslator, columns: list[ChartColumn]) -> exp.Select:
    selected = [alias_node(chart_column.value_expression, chart_column.name) for chart_column in columns]
    tree = exp.Select(expressions=selected).from_(conditions.unnests.sub_query_table(), copy=False)
    condition = conditions.translate_all(query.filter)
    conditions.unnests.add_joins(tree)
    if condition is not None:
        tree.where(condition, copy=False)
    grouped = [
        exp.Literal.number(position)
        for position, chart_column in enumerate(columns, 1)
        if chart_column.aggregate_function_name is None
    ]
    return tree.group_by(*grouped, copy=False)


def _query_time_window(query: LqlQuery, conditions: FilterTranslator) -> TimeWindow | None:
    """Return the time window to which the query restricts events; None if the query leaves one end open."""
    windows = [
        time_window_of(part, conditions.time_zone) for part in query.filter.filters if isinstance(part, TimeCondition)
    ]
    lows = [part_window.start_bound for part_window in windows if part_window.start_bound]
    highs = [part_window.end_bound for part_window in windows if part_window.end_bound]
    if not lows or not highs:
        return None
    low = TimeBound(_combine_bounds("GREATEST", lows), is_inclusive=True)
    high = TimeBound(_combine_bounds("LEAST", highs), is_inclusive=all(bound.is_inclusive for bound in highs))
    return TimeWindow(low, high, _shortest_window_seconds(windows) or _seconds_between_bounds(lows, highs))


def _shortest_window_seconds(windows: list[TimeWindow]) -> float | None:
    return min(
        (time_window.approximate_seconds for time_window in windows if time_window.approximate_seconds is not None),
        default=None,
    )


def _seconds_between_bounds(lows: list[TimeBound], highs: list[TimeBound]) -> float | None:
    """Return the seconds from the latest start to the earliest end; None if no start or no end is fixed.

    Bounds that depend on the current time are ignored.
    """
    starts = [bound.fixed_time for bound in lows if bound.fixed_time]
    ends = [bound.fixed_time for bound in highs if bound.fixed_time]
    return (min(ends) - max(starts)).total_seconds() if starts and ends else None


def _combine_bounds(function: str, bounds: list[TimeBound]) -> exp.Expr:
    if len(bounds) == 1:
        return bounds[0].time_expression
    combined = fill_query_template(
        f"{function}(@first, @second)", first=bounds[0].time_expression, second=bounds[1].time_expression
    )
    for bound in bounds[2:]:
        combined = fill_query_template(f"{function}(@value, @next)", value=combined, next=bound.time_expression)
    return combined


def _fill_empty_buckets(aggregated: exp.Select, columns: list[ChartColumn], buckets: exp.Select) -> exp.Select:
    """Return a query with a row for every bucket that `buckets` selects.

    In the row of a bucket without events, counts and sums are 0, and all other aggregates are NULL.
    """
    selected = [alias_node(column_node(("buckets", BUCKET_COLUMN)), TIMESTAMP_COLUMN)]
    for chart_column in columns[1:]:
        value = column_node(("counted", chart_column.name))
        filled_value = (
            fill_query_template("IFNULL(@value, 0)", value=value)
            if chart_column.aggregate_function_name in _FUNCTIONS_ZERO_IN_EMPTY_BUCKETS
            else value
        )
        selected.append(alias_node(filled_value, chart_column.name))
    tree = exp.Select(expressions=selected).from_(buckets.subquery("buckets", copy=False), copy=False)
    on_bucket = fill_query_template(
        "@counted = @bucket",
        counted=column_node(("counted", TIMESTAMP_COLUMN)),
        bucket=column_node(("buckets", BUCKET_COLUMN)),
    )
    return tree.join(aggregated.subquery("counted", copy=False), on=on_bucket, join_type="LEFT", copy=False)


def _add_sort_keys(tree: exp.Select, query: LqlQuery, info: SubQueryInfo, columns: list[ChartColumn]) -> exp.Select:
    """Add the requested order to the query of a chart.

    By default, a chart with time buckets is sorted by time, and any other chart by its first aggregate, the largest
    value first.
    """
    if query.sort_keys:
        return tree.order_by(*[_chart_sort_key(order, info, columns) for order in query.sort_keys], copy=False)
    grouped = [
        position for position, chart_column in enumerate(columns, 1) if chart_column.aggregate_function_name is None
    ]
    sort_keys = [(position, False) for position in grouped]
    if columns[0].path is not None:
        sort_keys = [(len(grouped) + 1, True), *sort_keys]
    return tree.order_by(*[sort_key(number_literal(str(position)), desc) for position, desc in sort_keys], copy=False)


def _chart_sort_key(order: SortKey, info: SubQueryInfo, columns: list[ChartColumn]) -> exp.Expr:
    column_name = TIMESTAMP_COLUMN if order.path.steps == ("t",) else order.path.last_step
    for position, chart_column in enumerate(columns, 1):
        if chart_column.path == order.path and chart_column.aggregate_function_name is None:
            return sort_key(number_literal(str(position)), order.is_descending)
        if len(order.path.steps) == 1 and chart_column.name.lower() == column_name.lower():
            return sort_key(number_literal(str(position)), order.is_descending)
    names = ", ".join(chart_column.name for chart_column in columns)
    raise UnknownNameInQuery(
        f"The chart has no column {column_name[:60]}.",
        hint=f"It has: {names}.",
        span=info.query_text_span(order.path.text_offset),
    )
