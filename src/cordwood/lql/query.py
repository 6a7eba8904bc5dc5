"""The syntax tree of LQL: immutable nodes, most of which have their position (`text_offset`) in the query's text."""

from datetime import datetime
from enum import StrEnum

import msgspec


class FilterOperator(StrEnum):
    """The operator between a filter's colon and its value; an omitted operator means equality."""

    EQUAL = ""
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    REGEX = "~"
    INCLUDES = "@>"
    INCLUDES_REGEX = "@>~"


class TimeUnit(StrEnum):
    """A unit of time, in BigQuery's spelling."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class _Node(msgspec.Struct, frozen=True):
    """The base class of nodes with a position (the field `text_offset`), which is ignored by comparisons and hashes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Node) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return type(self), *(getattr(self, name) for name in self.__struct_fields__ if name != "text_offset")


class Path(_Node, frozen=True):
    """A column, or a path inside an event: `m.status` has the parts ("metadata", "status")."""

    steps: tuple[str, ...]
    text_offset: int = 0

    @property
    def last_step(self) -> str:
        return self.steps[-1]


class UnquotedText(msgspec.Struct, frozen=True):
    """An unquoted value: a number, a boolean or a text, depending on its use."""

    text: str


class QuotedText(msgspec.Struct, frozen=True):
    """A quoted value, which is always text."""

    text: str


class NullValue(msgspec.Struct, frozen=True):
    """The value NULL."""


FilterValue = UnquotedText | QuotedText | NullValue


class FieldFilter(_Node, frozen=True):
    """A condition on a field: `path:value` with an operator."""

    path: Path
    operator: FilterOperator
    value: FilterValue
    text_offset: int = 0


class RangeFilter(_Node, frozen=True):
    """A condition that a field is in a range: `path:low..high`, both ends inclusive.

    The ends are two numbers, or two dates in the author's spelling.
    """

    path: Path
    low: str
    high: str
    text_offset: int = 0


class LevelRangeFilter(_Node, frozen=True):
    """A condition that a field is one of the levels in a range: `path:warning..critical`."""

    path: Path
    low: str
    high: str
    text_offset: int = 0


class Moment(msgspec.Struct, frozen=True):
    """A time in UTC. With a unit, it is the whole day, hour or minute that begins at `time`; without, an instant."""

    time: datetime
    unit: TimeUnit | None


class Period(msgspec.Struct, frozen=True):
    """The time from the start of the moment `low` to the end of the moment `high`; both may be the same moment."""

    low: Moment
    high: Moment


class RelativeTimeKind(StrEnum):
    """The kinds of time shorthand, all relative to the time of the call."""

    NOW = "now"
    TODAY = "today"
    YESTERDAY = "yesterday"
    THIS_UNIT = "this"
    LAST_UNITS = "last"
    UNITS_AGO = "ago"
    TIME_OF_DAY = "clock"


class RelativeTime(msgspec.Struct, frozen=True):
    """A relative time, such as `today` or `last@2hour`.

    In `this@unit` and `last@[count]unit`, `unit` and `count` are the parts of these names. In `now-2h..now-1h`, they
    state the start (2 hours ago), and `end_seconds_ago` is the end in seconds before now. For `14:05`, `count` is the
    minute of the day.
    """

    kind: RelativeTimeKind
    unit: TimeUnit = TimeUnit.DAY
    count: int = 1
    end_seconds_ago: int = 0


class TimeCondition(_Node, frozen=True):
    """A condition on the time of the event: `t:` with an operator."""

    operator: FilterOperator
    time: Period | RelativeTime
    text_offset: int = 0


class MessageFilter(_Node, frozen=True):
    """A word, a phrase or a regular expression to search for in the event's message."""

    text: str
    is_regex: bool = False
    text_offset: int = 0


class Not(msgspec.Struct, frozen=True):
    filter: "Filter"


class And(msgspec.Struct, frozen=True):
    filters: tuple["Filter", ...]


class Or(msgspec.Struct, frozen=True):
    filters: tuple["Filter", ...]


Filter = FieldFilter | RangeFilter | LevelRangeFilter | TimeCondition | MessageFilter | Not | And | Or


class Source(_Node, frozen=True):
    """The sub-query to read: `f:name`."""

    name: str
    text_offset: int = 0


class SelectedColumn(_Node, frozen=True):
    """An output column: `s:path@alias`; without a path it is `s:*`, all columns."""

    path: Path | None
    alias: str | None = None
    text_offset: int = 0


class Aggregate(_Node, frozen=True):
    """An aggregate of a chart: `c:function(path)`; without a path it is `count(*)`."""

    function: str
    path: Path | None
    text_offset: int = 0


class Bucket(_Node, frozen=True):
    """The time buckets of a chart, each `count` units long: `c:group_by(t::5m)`."""

    unit: TimeUnit
    text_offset: int = 0
    count: int = 1


class Dimension(_Node, frozen=True):
    """A dimension of a chart: `c:group_by(path)`."""

    path: Path
    text_offset: int = 0


class Order(_Node, frozen=True):
    """A sort key: `order:path@desc`."""

    path: Path
    is_descending: bool = False
    text_offset: int = 0


class Limit(_Node, frozen=True):
    """The row limit: `limit:100`."""

    rows: int
    text_offset: int = 0


Command = Source | SelectedColumn | Aggregate | Bucket | Dimension | Order | Limit


class Query(msgspec.Struct, frozen=True):
    """A whole query: the filter, the source, and the output."""

    filter: And = msgspec.field(default_factory=lambda: And(()))
    source: Source | None = None
    columns: tuple[SelectedColumn, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    orders: tuple[Order, ...] = ()
    limit: Limit | None = None

    @property
    def is_chart(self) -> bool:
        return bool(self.aggregates or self.buckets or self.dimensions)
