"""What an LQL text says: a query as values, each knowing where in the text it began."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


def _place() -> int:
    """Where a thing began is no part of what it says."""
    offset: int = field(default=0, compare=False)
    return offset


class Operator(StrEnum):
    """What stands between the colon and the value."""

    EQUAL = ""
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    REGEX = "~"
    INCLUDES = "@>"
    INCLUDES_REGEX = "@>~"


class Unit(StrEnum):
    """A unit of time, spelled as BigQuery does."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Path:
    """A column, or a way into an event: `m.status` is ("metadata", "status")."""

    parts: tuple[str, ...]
    at: int = _place()

    @property
    def last(self) -> str:
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Bare:
    """A value without quotes: a number, a boolean or a text, by use."""

    text: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A value that is text, whatever it looks like."""

    text: str


@dataclass(frozen=True, slots=True)
class Null:
    """The value NULL."""


Value = Bare | Quoted | Null


@dataclass(frozen=True, slots=True)
class Field:
    """`path:value` with an operator."""

    path: Path
    operator: Operator
    value: Value
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Range:
    """`path:low..high`, both ends within: two numbers, or two dates as they were written."""

    path: Path
    low: str
    high: str
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Levels:
    """`path:warning..critical`: one of the levels from the one to the other."""

    path: Path
    low: str
    high: str
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in UTC. With a unit it is that whole day, hour or minute; without, one instant."""

    time: datetime
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class Period:
    """From the beginning of one moment to the end of another; often both are the same."""

    low: Moment
    high: Moment


class Relative(StrEnum):
    """The shorthands, all relative to the moment of the call."""

    NOW = "now"
    TODAY = "today"
    YESTERDAY = "yesterday"
    THIS = "this"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Shorthand:
    """`unit` and `count` belong to `this@unit` and `last@[count]unit`."""

    kind: Relative
    unit: Unit = Unit.DAY
    count: int = 1


@dataclass(frozen=True, slots=True)
class Time:
    """`t:` with an operator: when the event happened."""

    operator: Operator
    when: Period | Shorthand
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Message:
    """A word, a phrase or a regular expression to be found in the event's message."""

    text: str
    is_regex: bool = False
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Not:
    filter: "Filter"


@dataclass(frozen=True, slots=True)
class All:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Any:
    filters: tuple["Filter", ...]


Filter = Field | Range | Levels | Time | Message | Not | All | Any


@dataclass(frozen=True, slots=True)
class Source:
    """`f:name`: the sub-query that is asked."""

    name: str
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Selected:
    """`s:path@alias`; without a path it is `s:*`."""

    path: Path | None
    alias: str | None = None
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`c:function(path)`; without a path it is `count(*)`."""

    function: str
    path: Path | None
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Bucket:
    """`c:group_by(t::unit)`."""

    unit: Unit
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Dimension:
    """`c:group_by(path)`."""

    path: Path
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Order:
    """`order:path@desc`."""

    path: Path
    is_descending: bool = False
    at: int = _place()


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit:100`."""

    rows: int
    at: int = _place()


Command = Source | Selected | Aggregate | Bucket | Dimension | Order | Limit


@dataclass(frozen=True, slots=True)
class Query:
    """A whole text: what is kept, from where, and how it is shown."""

    filter: All = field(default_factory=lambda: All(()))
    source: Source | None = None
    selected: tuple[Selected, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    orders: tuple[Order, ...] = ()
    limit: Limit | None = None

    @property
    def is_chart(self) -> bool:
        return bool(self.aggregates or self.buckets or self.dimensions)
