"""Formatting of a query as canonical text, which parses to the same query."""

import re
from typing import Final

from cordwood.lql.query import (
    Aggregate,
    All,
    Any,
    Bare,
    Bucket,
    Command,
    Dimension,
    Field,
    Filter,
    Levels,
    Limit,
    Message,
    Moment,
    Not,
    Null,
    Order,
    Path,
    Period,
    Query,
    Quoted,
    Range,
    Relative,
    Selected,
    Shorthand,
    Source,
    Time,
    Unit,
    Value,
)

_PLAIN: Final = re.compile(r"@?[\w$-]+")
_SPELLINGS: Final = {Unit.MINUTE: "%Y-%m-%dT%H:%MZ", Unit.HOUR: "%Y-%m-%dT%HZ"}


def show(query: Query) -> str:
    commands: list[Command] = [*query.selected, *query.aggregates, *query.buckets, *query.dimensions, *query.orders]
    sources = [query.source] if query.source else []
    limits = [query.limit] if query.limit else []
    filters = [show_filter(part) for part in query.filter.filters]
    return " ".join([*map(_command, sources), *filters, *map(_command, commands), *map(_command, limits)])


def show_filter(filter_: Filter) -> str:
    match filter_:
        case Not(inner):
            return "-" + _grouped(inner, also=Not)
        case All(filters):
            return " ".join(map(_grouped, filters))
        case Any(filters):
            return "(" + " OR ".join(map(show_filter, filters)) + ")"
        case Message():
            return ("~" if filter_.is_regex else "") + _quoted(filter_.text)
        case Time():
            return f"t:{filter_.operator}{_when(filter_.when)}"
        case _:
            return _field(filter_)


def _grouped(filter_: Filter, also: type[Filter] = All) -> str:
    """Format a filter, in parentheses if it is a group; OR writes its own."""
    text = show_filter(filter_)
    return f"({text})" if isinstance(filter_, All | also) else text


def _field(filter_: Field | Range | Levels) -> str:
    key = _path(filter_.path, as_clause=True)
    if isinstance(filter_, Field):
        return f"{key}:{filter_.operator}{_value(filter_.value)}"
    return f"{key}:{filter_.low}..{filter_.high}"


def _value(value: Value) -> str:
    match value:
        case Null():
            return "NULL"
        case Bare(text):
            return text.replace('"', '\\"')
        case Quoted(text):
            return _quoted(text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _path(path: Path, *, as_clause: bool = False) -> str:
    """Format a path.

    Quoted are a first step `m`, which would mean metadata, and a clause of one plain word, which might be a command.
    """
    first, *rest = path.parts
    if first == "metadata" and rest:
        return ".".join(["m", *map(_key, rest)])
    is_other = first == "m" if rest else as_clause
    return ".".join([_quoted(first) if is_other else _key(first), *map(_key, rest)])


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else _quoted(key)


def _when(when: Period | Shorthand) -> str:
    if isinstance(when, Period):
        low, high = _moment(when.low), _moment(when.high)
        return low if low == high else f"{low}..{high}"
    match when.kind:
        case Relative.THIS:
            return f"this@{when.unit}"
        case Relative.LAST:
            return f"last@{when.count}{when.unit}"
        case Relative.AGO:
            return f"now-{when.count}{when.unit}..now" + (f"-{when.until}s" if when.until else "")
        case Relative.CLOCK:
            return f"{when.count // 60:02d}:{when.count % 60:02d}"
        case _:
            return str(when.kind)


def _moment(moment: Moment) -> str:
    if moment.unit is Unit.DAY and moment.time.time().isoformat() == "00:00:00":
        return moment.time.date().isoformat()
    if moment.unit in _SPELLINGS:
        year = f"{moment.time.year:04d}"
        return year + moment.time.strftime(_SPELLINGS[moment.unit].removeprefix("%Y"))
    return moment.time.isoformat().replace("+00:00", "Z")


def _command(command: Command) -> str:
    match command:
        case Source(name):
            return f"f:{_quoted(name)}"
        case Limit(rows):
            return f"limit:{rows}"
        case Order(path):
            return f"order:{_path(path)}" + ("@desc" if command.is_descending else "@asc")
        case Selected():
            return f"s:{_selected(command)}"
        case _:
            return f"c:{_call(command)}"


def _selected(command: Selected) -> str:
    path = _path(command.path) if command.path else "*"
    return f"{path}@{command.alias}" if command.alias else path


def _call(command: Aggregate | Bucket | Dimension) -> str:
    match command:
        case Aggregate(function, path):
            return f"{function}({_path(path) if path else '*'})"
        case Bucket(unit):
            return f"group_by(t::{'' if command.count == 1 else command.count}{unit})"
        case Dimension(path):
            return f"group_by({_path(path)})"
