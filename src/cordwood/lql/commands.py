"""The clauses that are not filters: source (`f:`), output (`s:`, `c:`), order and limit."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from cordwood.lql.paths import read_path
from cordwood.lql.query import (
    Aggregate,
    All,
    Bucket,
    Command,
    Dimension,
    Limit,
    Order,
    Path,
    Query,
    Selected,
    Source,
    Unit,
)
from cordwood.lql.scan import Scanner
from cordwood.lql.times import UNIT_HINT, read_unit
from cordwood.lql.values import read_whole

_Command = TypeVar("_Command", bound=Command)

FUNCTIONS: Final = ("count", "countd", "avg", "sum", "min", "max", "p50", "p95", "p99")
# Any percentile, also with a decimal place: p90, p99.9.
PERCENTILE: Final = re.compile(r"p(\d{1,2})(?:\.(\d))?", re.ASCII)

_CALL: Final = re.compile(r"([a-z_0-9.]+)\((.*)\)", re.DOTALL)
_BUCKET: Final = re.compile(r"(?:t|timestamp)::(\d{0,4})([a-z]+)", re.ASCII)
# Units of constant length, of which a bucket may span several.
_COUNTED: Final = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR, Unit.DAY})
_ALIAS: Final = re.compile(r"\w+")
_ROWS: Final = re.compile(r"\d{1,9}", re.ASCII)
_CALL_HINT: Final = f"Write it as in c:avg(m.latency) or c:group_by(t::hour); functions are {', '.join(FUNCTIONS[:6])} and p with a percentile, as in p95."


class Draft:
    """A query during parsing: the commands so far."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.commands: list[Command] = []

    def query(self, found: All) -> Query:
        sources, limits = self._all(Source), self._all(Limit)
        self._check_once("f:", sources)
        self._check_once("limit:", limits)
        self._check_once("c:group_by(t::…)", buckets := self._all(Bucket))
        return Query(
            filter=found,
            source=sources[0] if sources else None,
            selected=self._all(Selected),
            aggregates=self._all(Aggregate),
            buckets=buckets,
            dimensions=self._all(Dimension),
            orders=self._all(Order),
            limit=limits[0] if limits else None,
        )

    def path(self, text: str, at: int) -> Path:
        """Parse the whole text as a path."""
        inner = Scanner(text)
        if not text:
            raise self.scanner.fault("A path is missing here.", "Write it as in m.status.", at)
        if inner.match_path() != text:
            raise self.scanner.fault(f"A path cannot be read here: {text[:60]}", "Write it as in m.status.", at)
        return read_path(text, at)

    def _all(self, kind: type[_Command]) -> tuple[_Command, ...]:
        return tuple(command for command in self.commands if isinstance(command, kind))

    def _check_once(self, clause: str, found: tuple[Command, ...]) -> None:
        if len(found) > 1:
            raise self.scanner.fault(f"{clause} can be said once.", "Leave one of them.", found[1].at)


def _source(draft: Draft, began: int) -> None:
    name = read_whole(draft.scanner)
    if not name:
        raise draft.scanner.fault("The name of a sub-query is missing.", "Write it as in f:edge_logs.", began)
    draft.commands.append(Source(name, began))


def _select(draft: Draft, began: int) -> None:
    text, place = _argument(draft)
    if text == "*":
        draft.commands.append(Selected(None, None, began))
        return
    path = Scanner(text).match_path() or ""
    alias = text[len(path) :]
    if alias.startswith(","):
        columns = " ".join(f"s:{name.strip()}" for name in text.split(",") if name.strip())
        raise draft.scanner.fault("A clause s: has one column.", f"Write {columns[:200]}.", place)
    if alias and (alias[0] != "@" or not _ALIAS.fullmatch(alias[1:])):
        raise draft.scanner.fault("A column's name after @ is one word of letters, digits and _.", None, place)
    draft.commands.append(Selected(draft.path(path, place), alias[1:] or None, began))


def _chart(draft: Draft, began: int) -> None:
    text, place = _argument(draft)
    call = _CALL.fullmatch(text)
    if call is None and (text in FUNCTIONS or text == "group_by"):
        hint = f"Write c:{text}(*)." if text == "count" else f"Write c:{text}(m.path)."
        raise draft.scanner.fault(f"{text} is written with brackets.", hint, place)
    if call is None:
        raise draft.scanner.fault(f"A chart cannot be read here: {text[:60]}", _CALL_HINT, place)
    function, argument = call[1], call[2].strip()
    place += len(function) + 1
    if function == "group_by":
        draft.commands.append(_grouping(draft, argument, place))
    elif function not in FUNCTIONS and not PERCENTILE.fullmatch(function):
        raise draft.scanner.fault(f"There is no function called {function[:40]}.", _CALL_HINT, began)
    elif argument == "*" and function != "count":
        raise draft.scanner.fault(f"{function} needs a path: only count takes *.", _CALL_HINT, place)
    else:
        path = None if argument == "*" else draft.path(argument, place)
        draft.commands.append(Aggregate(function, path, began))


def _grouping(draft: Draft, argument: str, place: int) -> Bucket | Dimension:
    bucket = _BUCKET.fullmatch(argument)
    if bucket is None:
        return Dimension(draft.path(argument, place), place)
    unit, count = read_unit(bucket[2]), int(bucket[1] or 1)
    if unit is None:
        raise draft.scanner.fault(f"There is no unit of time called {bucket[2][:40]}.", UNIT_HINT, place)
    if count != 1 and (unit not in _COUNTED or not count):
        raise draft.scanner.fault("Several units make a bucket from seconds to days.", "Write it as in t::5m.", place)
    return Bucket(unit, place, count)


def _order(draft: Draft, began: int) -> None:
    text, place = _argument(draft)
    path = Scanner(text).match_path() or ""
    direction = text[len(path) :]
    if direction not in {"", "@asc", "@desc"}:
        raise draft.scanner.fault("An order is @asc or @desc.", "Write it as in order:timestamp@desc.", place)
    draft.commands.append(Order(draft.path(path, place), direction == "@desc", began))


def _limit(draft: Draft, began: int) -> None:
    text, place = _argument(draft)
    if not _ROWS.fullmatch(text):
        raise draft.scanner.fault("A limit is a number of rows.", "Write it as in limit:100.", place)
    draft.commands.append(Limit(int(text), began))


def _argument(draft: Draft) -> tuple[str, int]:
    place = draft.scanner.at
    return draft.scanner.run(with_quotes=True), place


COMMANDS: Final[Mapping[str, Callable[[Draft, int], None]]] = {
    "f": _source,
    "from": _source,
    "s": _select,
    "select": _select,
    "c": _chart,
    "chart": _chart,
    "order": _order,
    "limit": _limit,
}
