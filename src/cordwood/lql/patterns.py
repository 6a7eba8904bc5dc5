"""Validation of a query's regular expressions by the engine."""

from collections.abc import Callable, Iterable, Iterator

from cordwood.errors import QueryValue
from cordwood.lql.parse import parse
from cordwood.lql.query import And, Field, Filter, Message, Not, Operator, Or, Quoted, Unquoted
from cordwood.sql.positions import span_at

_PATTERNS = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})


IsRegex = Callable[[str], str | None]


def check_patterns(text: str, is_regex: IsRegex) -> None:
    """Raise QueryValue at the first invalid regular expression, for which the engine would report no position."""
    check_each_pattern(text, _patterns(parse(text).filter), is_regex, "To search for the text itself, leave the ~ out.")


def check_each_pattern(text: str, patterns: Iterable[tuple[str, int]], is_regex: IsRegex, hint: str) -> None:
    """Raise QueryValue at the first of the patterns that is invalid; each has its offset in the text."""
    for pattern, offset in patterns:
        problem = is_regex(pattern)
        if problem is not None:
            message = f"This is no regular expression (RE2): {problem}"
            raise QueryValue(message, hint=hint, span=span_at(text, offset))


def _patterns(node: Filter) -> Iterator[tuple[str, int]]:
    match node:
        case Not(inner):
            yield from _patterns(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _patterns(part)
        case Message(pattern, True):
            yield pattern, node.offset
        case Field(_, operator, Unquoted(pattern) | Quoted(pattern)) if operator in _PATTERNS:
            yield pattern, node.offset
