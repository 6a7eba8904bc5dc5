"""Evaluate LQL filters on events that are not stored yet, for the transforms of a stream.

Such a filter is decided from a single event, in a time that is limited by the event's length. Regular expressions and
conditions on the time are therefore refused.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from cordwood.errors import QueryUnsupported, Span
from cordwood.lql.parse import parse_lql
from cordwood.lql.query import (
    And,
    FieldFilter,
    Filter,
    FilterOperator,
    LevelRangeFilter,
    LqlQuery,
    MessageFilter,
    Not,
    NullValue,
    Or,
    RangeFilter,
    TimeCondition,
    UnquotedText,
)
from cordwood.lql.values import NUMBER_TEXT_PATTERN, SEVERITY_LEVELS

# A function that returns the values at a path of one event. If the path passes through arrays, there may be several
# values.
PathReader = Callable[[Sequence[str]], list[object]]
EventPredicate = Callable[[PathReader], bool]

_MESSAGE_PATH: Final = ("event_message",)


def compile_event_predicate(text: str) -> EventPredicate:
    """Compile a filter to a predicate on events.

    Raise BadQuerySyntax or QueryUnsupported, with a position, for a clause that is not allowed.
    """
    query = parse_lql(text)
    if query != LqlQuery(filter=query.filter) or not query.filter.filters:
        raise QueryUnsupported("A transform takes filters alone.", hint="Leave out s:, c:, f:, order: and limit:.")
    return _compile_filter(query.filter)


def _compile_filter(node: Filter) -> EventPredicate:
    match node:
        case Not(inner):
            negated = _compile_filter(inner)
            return lambda read_path: not negated(read_path)
        case And(filters):
            predicates = [_compile_filter(predicate) for predicate in filters]
            return lambda read_path: all(predicate(read_path) for predicate in predicates)
        case Or(filters):
            alternatives = [_compile_filter(predicate) for predicate in filters]
            return lambda read_path: any(predicate(read_path) for predicate in alternatives)
        case MessageFilter():
            return _compile_message(node)
        case TimeCondition(text_offset=offset):
            raise _unsupported_error("A time", offset)
        case _:
            return _compile_field(node)


def _compile_message(node: MessageFilter) -> EventPredicate:
    if node.is_regex:
        raise _unsupported_error("A regular expression", node.text_offset)
    return lambda read_path: any(isinstance(value, str) and node.text in value for value in read_path(_MESSAGE_PATH))


def _compile_field(node: FieldFilter | RangeFilter | LevelRangeFilter) -> EventPredicate:
    path = node.path.steps
    matches_value = _value_predicate(node)
    if isinstance(node, FieldFilter) and isinstance(node.value, NullValue):
        return lambda read_path: all(value is None for value in read_path(path))
    return lambda read_path: any(matches_value(value) for value in read_path(path) if value is not None)


def _value_predicate(node: FieldFilter | RangeFilter | LevelRangeFilter) -> Callable[[object], bool]:
    """Return the predicate that at least one value at the filter's path must meet."""
    match node:
        case LevelRangeFilter(_, low, high):
            levels = SEVERITY_LEVELS[SEVERITY_LEVELS.index(low) : SEVERITY_LEVELS.index(high) + 1]
            return lambda value: value in levels
        case RangeFilter(_, low, high):
            if not (NUMBER_TEXT_PATTERN.fullmatch(low) and NUMBER_TEXT_PATTERN.fullmatch(high)):
                raise _unsupported_error("A range of times", node.text_offset)
            minimum, maximum = (_number_of(end) for end in (low, high))
            if minimum is None or maximum is None:
                raise _unsupported_error("A number that is too large", node.text_offset)
            return lambda value: (number := _number_of(value)) is not None and minimum <= number <= maximum
        case FieldFilter(_, FilterOperator.REGEX | FilterOperator.INCLUDES_REGEX):
            raise _unsupported_error("A regular expression", node.text_offset)
        case FieldFilter(_, operator, value):
            text = "" if isinstance(value, NullValue) else value.text
            return _comparison_predicate(operator, text, is_unquoted=isinstance(value, UnquotedText))


def _comparison_predicate(operator: FilterOperator, text: str, *, is_unquoted: bool) -> Callable[[object], bool]:
    number = _number_of(text) if is_unquoted else None
    compare = _COMPARISON_FUNCTIONS[operator]

    def matches_value(value: object) -> bool:
        if number is not None and (value_number := _number_of(value)) is not None:
            return compare(value_number, number)
        if isinstance(value, bool):
            return is_unquoted and operator in _EQUALITY_OPERATORS and text == ("true" if value else "false")
        return isinstance(value, str) and compare(value, text)

    return matches_value


_COMPARISON_FUNCTIONS: Final[dict[FilterOperator, Callable[..., bool]]] = {
    FilterOperator.EQUAL: lambda value, given: value == given,
    FilterOperator.INCLUDES: lambda value, given: value == given,
    FilterOperator.GREATER: lambda value, given: value > given,
    FilterOperator.GREATER_OR_EQUAL: lambda value, given: value >= given,
    FilterOperator.LESS: lambda value, given: value < given,
    FilterOperator.LESS_OR_EQUAL: lambda value, given: value <= given,
}
_EQUALITY_OPERATORS: Final = {FilterOperator.EQUAL, FilterOperator.INCLUDES}
_MAX_NUMBER_DIGITS: Final = 400


def _number_of(value: object) -> int | float | None:
    """Return a number unchanged, or convert the text of a number; return None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or len(value) > _MAX_NUMBER_DIGITS or not NUMBER_TEXT_PATTERN.fullmatch(value):
        return None
    if value.lstrip("-").isdigit():
        return int(value)
    return float(value) if math.isfinite(float(value)) else None


def _unsupported_error(subject: str, offset: int) -> QueryUnsupported:
    return QueryUnsupported(
        f"{subject} cannot be told of an event that arrives.",
        hint="Compare a field, or look for a text in the message.",
        span=Span(1, offset + 1),
    )
