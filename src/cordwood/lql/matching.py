"""Evaluation of LQL filters on events that are not stored yet.

Only filters on a single event, in time bounded by its length, are allowed: no regular expressions, no times.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from cordwood.errors import QueryUnsupported, Span
from cordwood.lql.parse import parse
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
    Query,
    Range,
    Time,
)
from cordwood.lql.values import LEVELS, NUMBER

# Returns the values at a path of one event: several if the path passes through arrays.
Read = Callable[[Sequence[str]], list[object]]
Matches = Callable[[Read], bool]

_MESSAGE: Final = ("event_message",)


def matcher(text: str) -> Matches:
    """Compile a filter; raise QuerySyntax or QueryUnsupported with the position of what is not allowed."""
    query = parse(text)
    if query != Query(filter=query.filter) or not query.filter.filters:
        raise QueryUnsupported("A transform takes filters alone.", hint="Leave out s:, c:, f:, order: and limit:.")
    return _matches(query.filter)


def _matches(asked: Filter) -> Matches:
    match asked:
        case Not(inner):
            found = _matches(inner)
            return lambda read: not found(read)
        case All(filters):
            every = [_matches(one) for one in filters]
            return lambda read: all(one(read) for one in every)
        case Any(filters):
            some = [_matches(one) for one in filters]
            return lambda read: any(one(read) for one in some)
        case Message():
            return _on_message(asked)
        case Time(at=at):
            raise _unsupported("A time", at)
        case _:
            return _on_field(asked)


def _on_message(asked: Message) -> Matches:
    if asked.is_regex:
        raise _unsupported("A regular expression", asked.at)
    return lambda read: any(isinstance(one, str) and asked.text in one for one in read(_MESSAGE))


def _on_field(asked: Field | Range | Levels) -> Matches:
    path = asked.path.parts
    test = _test(asked)
    if isinstance(asked, Field) and isinstance(asked.value, Null):
        return lambda read: all(one is None for one in read(path))
    return lambda read: any(test(one) for one in read(path) if one is not None)


def _test(asked: Field | Range | Levels) -> Callable[[object], bool]:
    """Return the predicate for one value."""
    match asked:
        case Levels(_, low, high):
            levels = LEVELS[LEVELS.index(low) : LEVELS.index(high) + 1]
            return lambda value: value in levels
        case Range(_, low, high):
            if not (NUMBER.fullmatch(low) and NUMBER.fullmatch(high)):
                raise _unsupported("A range of times", asked.at)
            least, most = (_number(end) for end in (low, high))
            if least is None or most is None:
                raise _unsupported("A number that is too large", asked.at)
            return lambda value: (number := _number(value)) is not None and least <= number <= most
        case Field(_, Operator.REGEX | Operator.INCLUDES_REGEX):
            raise _unsupported("A regular expression", asked.at)
        case Field(_, operator, value):
            text = "" if isinstance(value, Null) else value.text
            return _compared(operator, text, is_bare=isinstance(value, Bare))


def _compared(operator: Operator, text: str, *, is_bare: bool) -> Callable[[object], bool]:
    number = _number(text) if is_bare else None
    compare = _COMPARISONS[operator]

    def test(value: object) -> bool:
        if number is not None and (found := _number(value)) is not None:
            return compare(found, number)
        if isinstance(value, bool):
            return is_bare and operator in _EQUALS and text == ("true" if value else "false")
        return isinstance(value, str) and compare(value, text)

    return test


_COMPARISONS: Final[dict[Operator, Callable[..., bool]]] = {
    Operator.EQUAL: lambda value, given: value == given,
    Operator.INCLUDES: lambda value, given: value == given,
    Operator.GREATER: lambda value, given: value > given,
    Operator.GREATER_OR_EQUAL: lambda value, given: value >= given,
    Operator.LESS: lambda value, given: value < given,
    Operator.LESS_OR_EQUAL: lambda value, given: value <= given,
}
_EQUALS: Final = {Operator.EQUAL, Operator.INCLUDES}
_MOST_DIGITS: Final = 400


def _number(value: object) -> int | float | None:
    """Return a number, or the number that a text spells; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or len(value) > _MOST_DIGITS or not NUMBER.fullmatch(value):
        return None
    if value.lstrip("-").isdigit():
        return int(value)
    return float(value) if math.isfinite(float(value)) else None


def _unsupported(what: str, at: int) -> QueryUnsupported:
    return QueryUnsupported(
        f"{what} cannot be told of an event that arrives.",
        hint="Compare a field, or look for a text in the message.",
        span=Span(1, at + 1),
    )
