"""What an LQL text says: a query as values, each knowing where in the text it began."""

from datetime import datetime
from enum import StrEnum

import msgspec


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


class _Said(msgspec.Struct, frozen=True):
    """Where in the text a thing began, its `at`, is no part of what it says."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Said) and self._what() == other._what()

    def __hash__(self) -> int:
        return hash(self._what())

    def _what(self) -> tuple[object, ...]:
        return type(self), *(getattr(self, name) for name in self.__struct_fields__ if name != "at")


class Path(_Said, frozen=True):
    """A column, or a way into an event: `m.status` is ("metadata", "status")."""

    parts: tuple[str, ...]
    at: int = 0

    @property
    def last(self) -> str:
        return self.parts[-1]


class Bare(msgspec.Struct, frozen=True):
    """A value without quotes: a number, a boolean or a text, by use."""

    text: str


class Quoted(msgspec.Struct, frozen=True):
    """A value that is text, whatever it looks like."""

    text: str


class Null(msgspec.Struct, frozen=True):
    """The value NULL."""


Value = Bare | Quoted | Null


class Field(_Said, frozen=True):
    """`path:value` with an operator."""

    path: Path
    operator: Operator
    value: Value
    at: int = 0


class Range(_Said, frozen=True):
    """`path:low..high`, both ends within: two numbers, or two dates as they were written."""

    path: Path
    low: str
    high: str
    at: int = 0


class Levels(_Said, frozen=True):
    """`path:warning..critical`: one of the levels from the one to the other."""

    path: Path
    low: str
    high: str
    at: int = 0


class Moment(msgspec.Struct, frozen=True):
    """A time in UTC. With a unit it is that whole day, hour or minute; without, one instant."""

    time: datetime
    unit: Unit | None


class Period(msgspec.Struct, frozen=True):
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
    AGO = "ago"
    CLOCK = "clock"


class Shorthand(msgspec.Struct, frozen=True):
    """`unit` and `count` belong to `this@unit` and `last@[count]unit`.

    Of `now-2h..now-1h` they are the beginning, and `until` the seconds before now at its end; of `14:05` the `count` is
    the minute of today.
    """

    kind: Relative
    unit: Unit = Unit.DAY
    count: int = 1
    until: int = 0


class Time(_Said, frozen=True):
    """`t:` with an operator: when the event happened."""

    operator: Operator
    when: Period | Shorthand
    at: int = 0


class Message(_Said, frozen=True):
    """A word, a phrase or a regular expression to be found in the event's message."""

    text: str
    is_regex: bool = False
    at: int = 0


class Not(msgspec.Struct, frozen=True):
    filter: "Filter"


class All(msgspec.Struct, frozen=True):
    filters: tuple["Filter", ...]


class Any(msgspec.Struct, frozen=True):
    filters: tuple["Filter", ...]


Filter = Field | Range | Levels | Time | Message | Not | All | Any


class Source(_Said, frozen=True):
    """`f:name`: the sub-query that is asked."""

    name: str
    at: int = 0


class Selected(_Said, frozen=True):
    """`s:path@alias`; without a path it is `s:*`."""

    path: Path | None
    alias: str | None = None
    at: int = 0


class Aggregate(_Said, frozen=True):
    """`c:function(path)`; without a path it is `count(*)`."""

    function: str
    path: Path | None
    at: int = 0


class Bucket(_Said, frozen=True):
    """`c:group_by(t::5m)`: buckets of so many units."""

    unit: Unit
    at: int = 0
    count: int = 1


class Dimension(_Said, frozen=True):
    """`c:group_by(path)`."""

    path: Path
    at: int = 0


class Order(_Said, frozen=True):
    """`order:path@desc`."""

    path: Path
    is_descending: bool = False
    at: int = 0


class Limit(_Said, frozen=True):
    """`limit:100`."""

    rows: int
    at: int = 0


Command = Source | Selected | Aggregate | Bucket | Dimension | Order | Limit


class Query(msgspec.Struct, frozen=True):
    """A whole text: what is kept, from where, and how it is shown."""

    filter: All = msgspec.field(default_factory=lambda: All(()))
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
