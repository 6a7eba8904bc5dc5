"""The syntax tree of LQL: immutable nodes, most of which have their position (`text_offset`) in the query's text."""

from datetime import datetime
from enum import StrEnum

import msgspec


class FilterOperator(StrEnum):
    """The operator after a filter's colon; if the operator is omitted, the filter tests equality."""

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
    """The base class of nodes with a position (`text_offset`). Comparisons and hashes of nodes ignore the position."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Node) and self._equality_key() == other._equality_key()

    def __hash__(self) -> int:
        return hash(self._equality_key())

    def _equality_key(self) -> tuple[object, ...]:
        return type(self), *(getattr(self, name) for name in self.__struct_fields__ if name != "text_offset")


class EventFieldPath(_Node, frozen=True):
    """A path inside an event, or the name of a column: `m.status` has the steps ("metadata", "status")."""

    steps: tuple[str, ...]
    text_offset: int = 0

    @property
    def last_step(self) -> str:
        return self.steps[-1]


class UnquotedText(msgspec.Struct, frozen=True):
    """An unquoted value. The field with which it is compared determines whether it is a number, a boolean or a text."""

    text: str


class QuotedText(msgspec.Struct, frozen=True):
    """A quoted value, which is always text."""

    text: str


class NullValue(msgspec.Struct, frozen=True):
    """The value NULL."""


FilterValue = UnquotedText | QuotedText | NullValue


class FieldFilter(_Node, frozen=True):
    """A filter `path:value`, with or without an operator, which compares the field at a path with a value."""

    path: EventFieldPath
    operator: FilterOperator
    value: FilterValue
    text_offset: int = 0


class RangeFilter(_Node, frozen=True):
    """A filter `path:low..high`, which accepts a field whose value is in a range, both ends included.

    The ends are two numbers, or two dates in the author's spelling.
    """

    path: EventFieldPath
    low: str
    high: str
    text_offset: int = 0


class LevelRangeFilter(_Node, frozen=True):
    """A filter `path:warning..critical`, which accepts the severity levels from one level to another."""

    path: EventFieldPath
    low: str
    high: str
    text_offset: int = 0


class Moment(msgspec.Struct, frozen=True):
    """A time in UTC: the day, hour or minute that begins at `start_time`, or an instant if `precision_unit` is None."""

    start_time: datetime
    precision_unit: TimeUnit | None


class Period(msgspec.Struct, frozen=True):
    """The time from the start of `first_moment` to the end of `last_moment`, which may be the same moment."""

    first_moment: Moment
    last_moment: Moment


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
    """A time that is relative to the time of the call, such as `today` or `last@2hour`.

    In `this@unit` and `last@[count]unit`, the parts give `unit` and `unit_count`. In `now-2h..now-1h`, `unit_count` and
    `unit` give the start (2 hours ago), and `end_seconds_ago` gives the end (3600 seconds ago). For `14:05`,
    `unit_count` is the number of minutes since midnight.
    """

    kind: RelativeTimeKind
    unit: TimeUnit = TimeUnit.DAY
    unit_count: int = 1
    end_seconds_ago: int = 0


class TimeCondition(_Node, frozen=True):
    """A filter `t:`, which compares the time of the event with a period or a relative time."""

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


class SubQuerySource(_Node, frozen=True):
    """The command `f:name`, which names the sub-query to read."""

    name: str
    text_offset: int = 0


class SelectedColumn(_Node, frozen=True):
    """The command `s:path@alias`, which selects an output column; without a path it is `s:*` (all columns)."""

    path: EventFieldPath | None
    alias: str | None = None
    text_offset: int = 0

    @property
    def output_name(self) -> str:
        """The name of the column in the answer; empty for `s:*`."""
        return self.alias or (self.path.last_step if self.path is not None else "")


class Aggregate(_Node, frozen=True):
    """The command `c:function(path)`, which adds an aggregate to a chart. Without a path it is `c:count(*)`."""

    function_name: str
    argument_path: EventFieldPath | None
    text_offset: int = 0


class TimeBucket(_Node, frozen=True):
    """The command `c:group_by(t::5m)`, which groups a chart by time, in buckets of `units_per_bucket` units each."""

    unit: TimeUnit
    text_offset: int = 0
    units_per_bucket: int = 1


class Dimension(_Node, frozen=True):
    """The command `c:group_by(path)`, which groups a chart by the values at a path."""

    path: EventFieldPath
    text_offset: int = 0


class SortKey(_Node, frozen=True):
    """The command `order:path@desc`, which adds a sort key."""

    path: EventFieldPath
    is_descending: bool = False
    text_offset: int = 0


class Limit(_Node, frozen=True):
    """The command `limit:100`, which limits the number of rows."""

    rows: int
    text_offset: int = 0


Command = SubQuerySource | SelectedColumn | Aggregate | TimeBucket | Dimension | SortKey | Limit


class LqlQuery(msgspec.Struct, frozen=True):
    """A whole LQL query: the filter, the sub-query to read, the columns or aggregates, the order and the limit."""

    filter: And = msgspec.field(default_factory=lambda: And(()))
    source: SubQuerySource | None = None
    columns: tuple[SelectedColumn, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    time_buckets: tuple[TimeBucket, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    sort_keys: tuple[SortKey, ...] = ()
    limit: Limit | None = None

    @property
    def is_chart(self) -> bool:
        return bool(self.aggregates or self.time_buckets or self.dimensions)
