"""Translation of filters to SQL conditions."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.lql.known import Known
from cordwood.lql.query import (
    All,
    Any,
    Bare,
    Field,
    Filter,
    Levels,
    Message,
    Not,
    Null,
    Operator,
    Path,
    Period,
    Quoted,
    Range,
    Shorthand,
    Time,
)
from cordwood.lql.records import Records
from cordwood.lql.times import read_when
from cordwood.lql.values import LEVELS, NUMBER
from cordwood.lql.windows import condition, window
from cordwood.model.datatype import NUMBERS, Kind
from cordwood.sql.query_templates import all_of, any_of, fill, literal, number

NUMERIC: Final = frozenset(NUMBERS)
TEMPORAL: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
TYPELESS: Final = frozenset({Kind.VARIANT, Kind.JSON})

MESSAGE: Final = "event_message"
TIMESTAMP: Final = "timestamp"

_COMPARISONS: Final = {
    Operator.EQUAL: "@column = @value",
    Operator.GREATER: "@column > @value",
    Operator.GREATER_OR_EQUAL: "@column >= @value",
    Operator.LESS: "@column < @value",
    Operator.LESS_OR_EQUAL: "@column <= @value",
}
_MATCH: Final = "REGEXP_CONTAINS(@column, @pattern)"
_BOOLEANS: Final = frozenset({"true", "false"})
_MAX_INT64: Final = 2**63

Made = Callable[[exp.Expr], exp.Expr]


class Conditions(msgspec.Struct, frozen=True):
    """A translator of filters on one sub-query's columns; `records` collects the unnests that they need."""

    known: Known
    zone: str
    records: Records

    def all(self, found: All) -> exp.Expr | None:
        return all_of(list(map(self.of, found.filters))) if found.filters else None

    def of(self, asked: Filter) -> exp.Expr:
        match asked:
            case Not(inner):
                return self._negated(inner)
            case All(filters):
                return fill("(@all)", 0, all=all_of(list(map(self.of, filters))))
            case Any(filters):
                return any_of(list(map(self._branch, filters)))
            case Message():
                return self._message(asked)
            case _:
                return self._on_column(asked)

    def _on_column(self, asked: Time | Field | Range | Levels) -> exp.Expr:
        if isinstance(asked, Time):
            timestamp = self.timestamp(Path((TIMESTAMP,), asked.at))
            return condition(timestamp, window(asked, self.zone), asked.at)
        if isinstance(asked, Field):
            return self._field(asked)
        return self.records.where_any(asked.path, lambda column: self._between(asked, column))

    def _between(self, asked: Range | Levels, column: exp.Expr) -> exp.Expr:
        if isinstance(asked, Range):
            return self._range(asked, column)
        return _one_of(column, LEVELS[LEVELS.index(asked.low) : LEVELS.index(asked.high) + 1], asked.at)

    def _branch(self, asked: Filter) -> exp.Expr:
        return all_of(list(map(self.of, asked.filters))) if isinstance(asked, All) else self.of(asked)

    def _negated(self, inner: Filter) -> exp.Expr:
        """Return the negation of a filter; it keeps events for which the filter is NULL, as for a missing field."""
        if isinstance(inner, Field) and isinstance(inner.value, Null):
            return self.records.where_any(inner.path, lambda column: fill("@c IS NOT NULL", inner.at, c=column))
        made = self.of(inner)
        return fill("(@made) IS NOT TRUE", 0, made=made.unnest() if isinstance(made, exp.Paren) else made)

    def timestamp(self, path: Path) -> exp.Expr:
        """Return the column as a TIMESTAMP, whatever time type it has."""
        made = self.records.column(path)
        return made if self.known.kind(path) is Kind.TIMESTAMP else fill("TIMESTAMP(@made)", path.at, made=made)

    def _message(self, asked: Message) -> exp.Expr:
        path = Path((MESSAGE,), asked.at)
        self.known.kind(path)
        message = self.records.column(path)
        if asked.is_regex:
            return fill(_MATCH, asked.at, column=message, pattern=asked.text)
        if not asked.text:
            raise self._wrong("A phrase to search for is missing between the quotes.", asked.at)
        return fill("STRPOS(@message, @text) > 0", asked.at, message=message, text=asked.text)

    def _field(self, asked: Field) -> exp.Expr:
        kind = self.known.kind(asked.path)
        if isinstance(asked.value, Null):
            return self._missing(asked)
        if kind in TEMPORAL and asked.operator in _COMPARISONS:
            return self._time_field(asked, asked.value.text)
        if asked.operator in {Operator.INCLUDES, Operator.INCLUDES_REGEX}:
            if self.known.is_plain(asked.path.parts):
                operator = Operator.EQUAL if asked.operator is Operator.INCLUDES else Operator.REGEX
                return self._field(msgspec.structs.replace(asked, operator=operator))
            return self.records.where_any(asked.path, lambda column: self._includes(asked, column))
        return self.records.where_any(asked.path, lambda column: self._compared(asked, kind, column))

    def _missing(self, asked: Field) -> exp.Expr:
        if self.records.is_many(asked.path):
            present = self.records.where_any(asked.path, lambda column: fill("@c IS NOT NULL", asked.at, c=column))
            return fill("NOT @present", asked.at, present=present)
        return fill("@column IS NULL", asked.at, column=self.records.column(asked.path))

    def _time_field(self, asked: Field, text: str) -> exp.Expr:
        when = read_when(text, lambda message, hint: self._wrong(message, asked.at, hint))
        if asked.operator is not Operator.EQUAL and not _is_single(when):
            raise self._wrong("A shorthand or a range takes no operator.", asked.at)
        time = Time(asked.operator, when, asked.at)
        return condition(self.timestamp(asked.path), window(time, self.zone), asked.at)

    def _range(self, asked: Range, column: exp.Expr) -> exp.Expr:
        kind = self.known.kind(asked.path)
        if kind in TEMPORAL:
            field_ = Field(asked.path, Operator.EQUAL, Bare(f"{asked.low}..{asked.high}"), asked.at)
            return self._time_field(field_, f"{asked.low}..{asked.high}")
        template = "@column BETWEEN @low AND @high"
        if not NUMBER.fullmatch(asked.low):
            return fill(template, asked.at, column=column, low=asked.low, high=asked.high)
        if kind is Kind.STRING:
            column = fill("SAFE_CAST(@column AS FLOAT64)", asked.at, column=column)
        low, high = (read_number(end, asked.at) for end in (asked.low, asked.high))
        if low is None or high is None:
            raise self._wrong("A number of the range is too large.", asked.at)
        return fill(template, asked.at, column=column, low=low, high=high)

    def _includes(self, asked: Field, column: exp.Expr) -> exp.Expr:
        element = fill("item", asked.at)
        if asked.operator is Operator.INCLUDES_REGEX:
            found = fill(_MATCH, asked.at, column=element, pattern=_text(asked))
        else:
            found = self._compared(Field(asked.path, Operator.EQUAL, asked.value, asked.at), Kind.VARIANT, element)
        return fill("EXISTS(SELECT 1 FROM UNNEST(@column) AS item WHERE @found)", asked.at, column=column, found=found)

    def _compared(self, asked: Field, kind: Kind, column: exp.Expr) -> exp.Expr:
        if asked.operator is Operator.REGEX:
            subject = column if kind in TYPELESS | {Kind.STRING} else _as_text(column, asked.at)
            return fill(_MATCH, asked.at, column=subject, pattern=_text(asked))
        template = _COMPARISONS[asked.operator]
        if isinstance(asked.value, Quoted) or kind is Kind.STRING:
            subject = column if kind in TYPELESS | {Kind.STRING} else _as_text(column, asked.at)
            return fill(template, asked.at, column=subject, value=_text(asked))
        values = self._bare(asked, kind)
        return any_of([fill(template, asked.at, column=column, value=value) for value in values])

    def _bare(self, asked: Field, kind: Kind) -> list[exp.Expr]:
        """Return the literals that an unquoted value may be: `0123` is that text and the number 123."""
        text, at = _text(asked), asked.at
        as_number = read_number(text, at)
        self._check_kind(asked, kind, is_number=as_number is not None)
        if as_number is None:
            # As a BOOL literal it would also match the number 1 of an event.
            return [fill(text.upper(), at) if text in _BOOLEANS and kind is not Kind.VARIANT else literal(text, at)]
        if kind in NUMERIC or asked.operator is not Operator.EQUAL or as_number.sql("bigquery") == text:
            return [as_number]
        return [literal(text, at), as_number]

    def _check_kind(self, asked: Field, kind: Kind, *, is_number: bool) -> None:
        text = _text(asked)
        if kind in NUMERIC and not is_number:
            raise self._wrong(f"{asked.path.last} is a number; {text[:40]} is none.", asked.at)
        if kind is Kind.BOOL and text not in _BOOLEANS:
            raise self._wrong(f"{asked.path.last} is true or false; {text[:40]} is neither.", asked.at)

    def _wrong(self, message: str, at: int, hint: str | None = None) -> QueryValue:
        return QueryValue(message, hint=hint, span=self.known.span(at))


def read_number(text: str, at: int) -> exp.Expr | None:
    """Return the number in SQL's spelling; None if the text is not a number, or it exceeds FLOAT64."""
    if not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return None
    value = Decimal(text)
    if value == value.to_integral_value() and "." not in text and "e" not in text.lower():
        return number(str(int(value)) + (".0" if abs(int(value)) >= _MAX_INT64 else ""), at)
    return number(f"{value.normalize():f}" if abs(value.adjusted()) < 20 else f"{value:e}", at)


def _text(asked: Field) -> str:
    return "" if isinstance(asked.value, Null) else asked.value.text


def _as_text(column: exp.Expr, at: int) -> exp.Expr:
    return fill("CAST(@column AS STRING)", at, column=column)


def _one_of(column: exp.Expr, texts: tuple[str, ...], at: int) -> exp.Expr:
    made = fill("@column IN (@first)", at, column=column)
    made.set("expressions", [literal(text, at) for text in texts])
    return made


def _is_single(when: Period | Shorthand) -> bool:
    return isinstance(when, Period) and when.low == when.high
