"""Hypothesis strategies for LQL queries, and for texts that resemble them."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from cordwood.lql.parse import AGGREGATE_FUNCTIONS
from cordwood.lql.query import (
    Aggregate,
    And,
    Dimension,
    EventFieldPath,
    FieldFilter,
    Filter,
    FilterOperator,
    LevelRangeFilter,
    Limit,
    LqlQuery,
    MessageFilter,
    Moment,
    Not,
    NullValue,
    Or,
    Period,
    QuotedText,
    RangeFilter,
    RelativeTime,
    RelativeTimeKind,
    SelectedColumn,
    SortKey,
    SubQuerySource,
    TimeBucket,
    TimeCondition,
    TimeUnit,
    UnquotedText,
)

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
KEYS = st.one_of(st.sampled_from(["status", "path", "user-agent", "limit", "t", "m", "größe"]), TEXTS)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: EventFieldPath(tuple(keys)))
UNQUOTED_VALUES = st.sampled_from(
    ["5", "-1.5", "0123", "true", "abc", "/rest", "10.0.0.1", "123abc", "a(b)", "NULLABLE", "x=y", "é"]
)
COMPARISONS = st.sampled_from(
    [
        FilterOperator.EQUAL,
        FilterOperator.GREATER,
        FilterOperator.GREATER_OR_EQUAL,
        FilterOperator.LESS,
        FilterOperator.LESS_OR_EQUAL,
    ]
)
TEXT_OPERATORS = st.sampled_from([FilterOperator.REGEX, FilterOperator.INCLUDES_REGEX])
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 # the zone is given
MOMENTS = st.one_of(
    TIMES.map(lambda time: Moment(time, None)),
    TIMES.map(lambda time: Moment(time.replace(second=0, microsecond=0), TimeUnit.MINUTE)),
    TIMES.map(lambda time: Moment(time.replace(minute=0, second=0, microsecond=0), TimeUnit.HOUR)),
    TIMES.map(lambda time: Moment(time.replace(hour=0, minute=0, second=0, microsecond=0), TimeUnit.DAY)),
)
UNITS = st.sampled_from(list(TimeUnit))
SHORTHANDS = st.one_of(
    st.sampled_from(
        [
            RelativeTime(RelativeTimeKind.NOW),
            RelativeTime(RelativeTimeKind.TODAY),
            RelativeTime(RelativeTimeKind.YESTERDAY),
        ]
    ),
    st.builds(RelativeTime, st.just(RelativeTimeKind.THIS_UNIT), UNITS),
    st.builds(RelativeTime, st.just(RelativeTimeKind.LAST_UNITS), UNITS, st.integers(0, 999_999)),
)


def _period(first: Moment, second: Moment) -> Period:
    return Period(*sorted((first, second), key=lambda moment: moment.start_time))


def _range(path: EventFieldPath, first: int, second: int) -> RangeFilter:
    low, high = sorted((first, second))
    return RangeFilter(path, str(low), str(high))


def _levels(path: EventFieldPath, ends: tuple[str, str]) -> LevelRangeFilter:
    return LevelRangeFilter(EventFieldPath((*path.steps, "level")), *ends)


LEVEL_PAIRS = st.sampled_from([("debug", "error"), ("info", "info"), ("warning", "emergency")])
SIMPLE_FILTERS: st.SearchStrategy[Filter] = st.one_of(
    st.builds(FieldFilter, PATHS, COMPARISONS, UNQUOTED_VALUES.map(UnquotedText)),
    st.builds(FieldFilter, PATHS, st.sampled_from(list(FilterOperator)), TEXTS.map(QuotedText)),
    st.builds(FieldFilter, PATHS, TEXT_OPERATORS, TEXTS.map(QuotedText)),
    st.builds(FieldFilter, PATHS, st.just(FilterOperator.EQUAL), st.just(NullValue())),
    st.builds(_range, PATHS, st.integers(), st.integers()),
    st.builds(_levels, PATHS, LEVEL_PAIRS),
    st.builds(TimeCondition, COMPARISONS, MOMENTS.map(lambda moment: Period(moment, moment))),
    st.builds(TimeCondition, st.just(FilterOperator.EQUAL), st.builds(_period, MOMENTS, MOMENTS)),
    st.builds(TimeCondition, st.just(FilterOperator.EQUAL), SHORTHANDS),
    st.builds(MessageFilter, TEXTS, st.booleans()),
)


def _conjunction(filters: list[Filter]) -> Filter:
    """Return the conjunction of the filters. Inner conjunctions are flattened, because they have the same text."""
    flat = [inner for part in filters for inner in (part.filters if isinstance(part, And) else (part,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def _disjunction(filters: list[Filter]) -> Filter:
    flat = [inner for part in filters for inner in (part.filters if isinstance(part, Or) else (part,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


FILTERS: st.SearchStrategy[Filter] = st.recursive(
    SIMPLE_FILTERS,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1, max_size=3).map(_conjunction),
        st.lists(inner, min_size=1, max_size=3).map(_disjunction),
    ),
    max_leaves=6,
)
AGGREGATES = st.one_of(
    st.just(Aggregate("count", None)), st.builds(Aggregate, st.sampled_from(AGGREGATE_FUNCTIONS), PATHS)
)
ALIASES = st.one_of(st.none(), st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True))


def _query(
    filters: list[Filter], orders: list[SortKey], rows: int | None, output: dict[str, tuple[object, ...]]
) -> LqlQuery:
    conjunction = _conjunction(filters) if filters else And(())
    filter_ = conjunction if isinstance(conjunction, And) else And((conjunction,))
    limit = None if rows is None else Limit(rows)
    return LqlQuery(filter=filter_, sort_keys=tuple(orders), limit=limit, **output)  # type: ignore[arg-type] # one of the two shapes below


OUTPUTS = st.one_of(
    st.fixed_dictionaries({"columns": st.lists(st.builds(SelectedColumn, PATHS, ALIASES), max_size=2).map(tuple)}),
    st.fixed_dictionaries(
        {
            "aggregates": st.lists(AGGREGATES, max_size=2).map(tuple),
            "time_buckets": st.lists(st.builds(TimeBucket, UNITS), max_size=1).map(tuple),
            "dimensions": st.lists(st.builds(Dimension, PATHS), max_size=2).map(tuple),
        }
    ),
    st.fixed_dictionaries({"source": TEXTS.map(SubQuerySource)}),
)
QUERIES = st.builds(
    _query,
    st.lists(FILTERS, max_size=3),
    st.lists(st.builds(SortKey, PATHS, st.booleans()), max_size=2),
    st.one_of(st.none(), st.integers(0, 999_999_999)),
    OUTPUTS,
)

QUERY_FRAGMENTS = st.sampled_from(
    [
        "error",
        "-debug",
        "~^GET",
        "~(",
        '"',
        '"a',
        'b"',
        "m.status:",
        "m.status:200",
        "m.status:200..299",
        "m.ms:>1",
        "m.tags:@>prod",
        "m.level:info..error",
        "t:",
        "t:today",
        "t:last@5m",
        "t:2024-01-02",
        "t:2024-01-{01..05}",
        "-(",
        "(",
        ")",
        "OR",
        "f:edge_logs",
        "s:*",
        "s:id",
        "s:m.request.n@n",
        "c:count(*)",
        "c:avg(m.ms)",
        "c:group_by(t::hour)",
        "c:group_by(m.path)",
        "order:id@desc",
        "limit:5",
        "project:a",
        "size:>0",
        "guessed:false",
        "m.calls.ms:3",
        "NULL",
        "m.x:NULL",
        "m.zip:0123",
        "m.a.b.c.d:",
        "..",
        ":>",
        "@",
        "é",
        "\\",
        "'",
        "`",
        "metadata:5",
        "timestamp:>2024-01-01",
        "m.request:{}",
        "t:>=2024",
        "-t:now",
    ]
)
TEXTS_LIKE_QUERIES = st.one_of(
    st.text(max_size=60),
    st.lists(QUERY_FRAGMENTS, max_size=8).map(" ".join),
    st.lists(st.one_of(QUERY_FRAGMENTS, st.text(max_size=3)), max_size=8).map("".join),
)
