"""Regular expressions in a query, held against the engine's idea of one."""

from collections.abc import Callable, Iterator

from cordwood.errors import QueryValue
from cordwood.lql.query import All, Any, Bare, Field, Filter, Message, Not, Operator, Quoted
from cordwood.sql.places import span_at

_PATTERNS = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})


def check_patterns(found: Filter, is_regex: Callable[[str], str | None], text: str) -> None:
    """QueryValue at the first pattern that is none."""
    for pattern, at in _patterns(found):
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
