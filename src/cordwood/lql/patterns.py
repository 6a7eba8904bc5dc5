"""Validation of a query's regular expressions by the engine."""

from collections.abc import Callable, Iterator

from cordwood.errors import QueryValue
from cordwood.lql.parse import parse
from cordwood.lql.query import All, Any, Bare, Field, Filter, Message, Not, Operator, Quoted
from cordwood.sql.positions import span_at

_PATTERNS = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})


IsRegex = Callable[[str], str | None]


def check_patterns(text: str, is_regex: IsRegex) -> None:
    """Raise QueryValue at the first invalid regular expression, for which the engine would report no position."""
    for pattern, at in _patterns(parse(text).filter):
        wrong = is_regex(pattern)
        if wrong is not None:
            raise QueryValue(
                f"This is no regular expression (RE2): {wrong}",
                hint="To search for the text itself, leave the ~ out.",
                span=span_at(text, at),
            )


def _patterns(found: Filter) -> Iterator[tuple[str, int]]:
    match found:
        case Not(inner):
            yield from _patterns(inner)
        case All(filters) | Any(filters):
            for part in filters:
                yield from _patterns(part)
        case Message(pattern, True):
            yield pattern, found.at
        case Field(_, operator, Bare(pattern) | Quoted(pattern)) if operator in _PATTERNS:
            yield pattern, found.at
