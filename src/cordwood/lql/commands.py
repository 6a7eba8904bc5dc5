"""The clauses that are not filters: source (`f:`), output (`s:`, `c:`), order and limit."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from cordwood.lql.paths import read_path
from cordwood.lql.query import (
    Aggregate,
    And,
    Bucket,
    Command,
    Dimension,
    Limit,
    Order,
    Path,
    Query,
    SelectedColumn,
    Source,
    Unit,
)
from cordwood.lql.scanner import Scanner
from cordwood.lql.times import UNIT_HINT, read_unit
from cordwood.lql.values import read_text

_Command = TypeVar("_Command", bound=Command)

FUNCTIONS: Final = ("count", "countd", "avg", "sum", "min", "max", "p50", "p95", "p99")
# Any percentile, also with a decimal place: p90, p99.9.
PERCENTILE: Final = re.compile(r"p(\d{1,2})(?:\.(\d))?", re.ASCII)

_CALL: Final = re.compile(r"([a-z_0-9.]+)\((.*)\)", re.DOTALL)
_BUCKET: Final = re.compile(r"(?:t|timestamp)::(\d{0,4})([a-z]+)", re.ASCII)
# Units of constant length, of which a bucket may span several.
_CONSTANT_UNITS: Final = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR, Unit.DAY})
_ALIAS: Final = re.compile(r"\w+")
_ROW_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_CALL_HINT: Final = f"Write it as in c:avg(m.latency) or c:group_by(t::hour); functions are {', '.join(FUNCTIONS[:6])} and p with a percentile, as in p95."


class QueryBuilder:
    """A query during parsing: the commands so far."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.commands: list[Command] = []

    def build(self, condition: And) -> Query:
        sources, limits = self._commands_of(Source), self._commands_of(Limit)
        self._check_once("f:", sources)
        self._check_once("limit:", limits)
        self._check_once("c:group_by(t::…)", buckets := self._commands_of(Bucket))
        return Query(
            filter=condition,
            source=sources[0] if sources else None,
            columns=self._commands_of(SelectedColumn),
            aggregates=self._commands_of(Aggregate),
            buckets=buckets,
            dimensions=self._commands_of(Dimension),
            orders=self._commands_of(Order),
            limit=limits[0] if limits else None,
        )

    def read_path_text(self, text: str, offset: int) -> Path:
        """Parse the whole text as a path."""
        inner = Scanner(text)
        if not text:
            raise self.scanner.fault("A path is missing here.", "Write it as in m.status.", offset)
        if inner.match_path() != text:
            raise self.scanner.fault(f"A path cannot be read here: {text[:60]}", "Write it as in m.status.", offset)
        return read_path(text, offset)

    def _commands_of(self, kind: type[_Command]) -> tuple[_Command, ...]:
        return tuple(command for command in self.commands if isinstance(command, kind))

    def _check_once(self, clause: str, commands: tuple[Command, ...]) -> None:
        if len(commands) > 1:
            raise self.scanner.fault(f"{clause} can be said once.", "Leave one of them.", commands[1].offset)


def _add_source(builder: QueryBuilder, start: int) -> None:
    name = read_text(builder.scanner)
    if not name:
        raise builder.scanner.fault("The name of a sub-query is missing.", "Write it as in f:edge_logs.", start)
    builder.commands.append(Source(name, start))


def _add_column(builder: QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    if text == "*":
        builder.commands.append(SelectedColumn(None, None, start))
        return
    path = Scanner(text).match_path() or ""
    alias = text[len(path) :]
    if alias.startswith(","):
        columns = " ".join(f"s:{name.strip()}" for name in text.split(",") if name.strip())
        raise builder.scanner.fault("A clause s: has one column.", f"Write {columns[:200]}.", argument_start)
    if alias and (alias[0] != "@" or not _ALIAS.fullmatch(alias[1:])):
        raise builder.scanner.fault(
            "A column's name after @ is one word of letters, digits and _.", None, argument_start
        )
    builder.commands.append(SelectedColumn(builder.read_path_text(path, argument_start), alias[1:] or None, start))


def _add_chart(builder: QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    call = _CALL.fullmatch(text)
    if call is None and (text in FUNCTIONS or text == "group_by"):
        hint = f"Write c:{text}(*)." if text == "count" else f"Write c:{text}(m.path)."
        raise builder.scanner.fault(f"{text} is written with brackets.", hint, argument_start)
    if call is None:
        raise builder.scanner.fault(f"A chart cannot be read here: {text[:60]}", _CALL_HINT, argument_start)
    function, argument = call[1], call[2].strip()
    argument_start += len(function) + 1
    if function == "group_by":
        builder.commands.append(_read_grouping(builder, argument, argument_start))
    elif function not in FUNCTIONS and not PERCENTILE.fullmatch(function):
        raise builder.scanner.fault(f"There is no function called {function[:40]}.", _CALL_HINT, start)
    elif argument == "*" and function != "count":
        raise builder.scanner.fault(f"{function} needs a path: only count takes *.", _CALL_HINT, argument_start)
    else:
        path = None if argument == "*" else builder.read_path_text(argument, argument_start)
        builder.commands.append(Aggregate(function, path, start))


def _read_grouping(builder: QueryBuilder, argument: str, argument_start: int) -> Bucket | Dimension:
    bucket = _BUCKET.fullmatch(argument)
    if bucket is None:
        return Dimension(builder.read_path_text(argument, argument_start), argument_start)
    unit, count = read_unit(bucket[2]), int(bucket[1] or 1)
    if unit is None:
        raise builder.scanner.fault(f"There is no unit of time called {bucket[2][:40]}.", UNIT_HINT, argument_start)
    if count != 1 and (unit not in _CONSTANT_UNITS or not count):
        raise builder.scanner.fault(
            "Several units make a bucket from seconds to days.", "Write it as in t::5m.", argument_start
        )
    return Bucket(unit, argument_start, count)


def _add_order(builder: QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    path = Scanner(text).match_path() or ""
    direction = text[len(path) :]
    if direction not in {"", "@asc", "@desc"}:
        raise builder.scanner.fault(
            "An order is @asc or @desc.", "Write it as in order:timestamp@desc.", argument_start
        )
    builder.commands.append(Order(builder.read_path_text(path, argument_start), direction == "@desc", start))


def _add_limit(builder: QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    if not _ROW_COUNT.fullmatch(text):
        raise builder.scanner.fault("A limit is a number of rows.", "Write it as in limit:100.", argument_start)
    builder.commands.append(Limit(int(text), start))


def _read_argument(builder: QueryBuilder) -> tuple[str, int]:
    argument_start = builder.scanner.offset
    return builder.scanner.scan_word(with_quotes=True), argument_start


COMMANDS: Final[Mapping[str, Callable[[QueryBuilder, int], None]]] = {
    "f": _add_source,
    "from": _add_source,
    "s": _add_column,
    "select": _add_column,
    "c": _add_chart,
    "chart": _add_chart,
    "order": _add_order,
    "limit": _add_limit,
}
