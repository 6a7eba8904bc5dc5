"""Formatting of a parsed LQL query as canonical text, which parses to the same query."""

import re
from typing import Final

from cordwood.lql.query import (
    Aggregate,
    And,
    Command,
    Dimension,
    EventFieldPath,
    FieldFilter,
    Filter,
    FilterValue,
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

# A hyphen before a clause negates the clause.
_UNQUOTED_KEY: Final = re.compile(r"@?[\w$][\w$-]*")
_TIME_FORMATS: Final = {TimeUnit.MINUTE: "%Y-%m-%dT%H:%MZ", TimeUnit.HOUR: "%Y-%m-%dT%HZ"}


def format_query(query: LqlQuery) -> str:
    commands: list[Command] = [
        *query.columns,
        *query.aggregates,
        *query.time_buckets,
        *query.dimensions,
        *query.sort_keys,
    ]
    sources = [query.source] if query.source else []
    limits = [query.limit] if query.limit else []
    filters = [format_filter(part) for part in query.filter.filters]
    return " ".join(
        [*map(_format_command, sources), *filters, *map(_format_command, commands), *map(_format_command, limits)]
    )


def format_filter(filter_: Filter) -> str:
    match filter_:
        case Not(inner):
            return "-" + _format_group(inner, also=Not)
        case And(filters):
            return " ".join(map(_format_group, filters))
        case Or(filters):
            return "(" + " OR ".join(map(format_filter, filters)) + ")"
        case MessageFilter():
            return ("~" if filter_.is_regex else "") + _quote(filter_.text)
        case TimeCondition():
            return f"t:{filter_.operator}{_format_when(filter_.time)}"
        case _:
            return _format_field(filter_)


def _format_group(filter_: Filter, also: type[Filter] = And) -> str:
    """Format a filter, in parentheses if it is a group. An OR filter has its own parentheses."""
    text = format_filter(filter_)
    return f"({text})" if isinstance(filter_, And | also) else text


def _format_field(filter_: FieldFilter | RangeFilter | LevelRangeFilter) -> str:
    key = _format_path(filter_.path, as_clause=True)
    if isinstance(filter_, FieldFilter):
        return f"{key}:{filter_.operator}{_format_value(filter_.value)}"
    return f"{key}:{filter_.low}..{filter_.high}"


def _format_value(value: FilterValue) -> str:
    match value:
        case NullValue():
            return "NULL"
        case UnquotedText(text):
            return text.replace('"', '\\"')
        case QuotedText(text):
            return _quote(text)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _format_path(path: EventFieldPath, *, as_clause: bool = False) -> str:
    """Format a path, quoting a step where the plain text has another meaning.

    A first step `m` would mean `metadata`. A clause of one plain word might be a command.
    """
    first, *other_steps = path.steps
    if first == "metadata" and other_steps:
        return ".".join(["m", *map(_format_key, other_steps)])
    needs_quotes = first == "m" if other_steps else as_clause
    return ".".join([_quote(first) if needs_quotes else _format_key(first), *map(_format_key, other_steps)])


def _format_key(key: str) -> str:
    return key if _UNQUOTED_KEY.fullmatch(key) else _quote(key)


def _format_when(when: Period | RelativeTime) -> str:
    if isinstance(when, Period):
        low, high = _format_moment(when.first_moment), _format_moment(when.last_moment)
        return low if low == high else f"{low}..{high}"
    match when.kind:
        case RelativeTimeKind.THIS_UNIT:
            return f"this@{when.unit}"
        case RelativeTimeKind.LAST_UNITS:
            return f"last@{when.unit_count}{when.unit}"
        case RelativeTimeKind.UNITS_AGO:
            return f"now-{when.unit_count}{when.unit}..now" + (
                f"-{when.end_seconds_ago}s" if when.end_seconds_ago else ""
            )
        case RelativeTimeKind.TIME_OF_DAY:
            return f"{when.unit_count // 60:02d}:{when.unit_count % 60:02d}"
        case _:
            return str(when.kind)


def _format_moment(moment: Moment) -> str:
    if moment.precision_unit is TimeUnit.DAY and moment.start_time.time().isoformat() == "00:00:00":
        return moment.start_time.date().isoformat()
    if moment.precision_unit in _TIME_FORMATS:
        year = f"{moment.start_time.year:04d}"
        return year + moment.start_time.strftime(_TIME_FORMATS[moment.precision_unit].removeprefix("%Y"))
    return moment.start_time.isoformat().replace("+00:00", "Z")


def _format_command(command: Command) -> str:
    match command:
        case SubQuerySource(name):
            return f"f:{_quote(name)}"
        case Limit(rows):
            return f"limit:{rows}"
        case SortKey(path):
            return f"order:{_format_path(path)}" + ("@desc" if command.is_descending else "@asc")
        case SelectedColumn():
            return f"s:{_format_column(command)}"
        case _:
            return f"c:{_format_call(command)}"


def _format_column(command: SelectedColumn) -> str:
    path = _format_path(command.path) if command.path else "*"
    return f"{path}@{command.alias}" if command.alias else path


def _format_call(command: Aggregate | TimeBucket | Dimension) -> str:
    match command:
        case Aggregate(function, path):
            return f"{function}({_format_path(path) if path else '*'})"
        case TimeBucket(unit):
            return f"group_by(t::{'' if command.units_per_bucket == 1 else command.units_per_bucket}{unit})"
        case Dimension(path):
            return f"group_by({_format_path(path)})"
