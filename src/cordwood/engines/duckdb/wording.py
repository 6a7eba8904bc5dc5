"""DuckDB's sentences about a query in the words of who wrote it: BigQuery's types, and names without our marks."""

import re
from collections.abc import Callable
from typing import Final

_TYPES: Final = {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "DATETIME",
    "INTEGER_LITERAL": "INT64",
    "STRING_LITERAL": "STRING",
    "VARCHAR": "STRING",
    "BIGINT": "INT64",
    "INTEGER": "INT64",
    "HUGEINT": "INT64",
    "DOUBLE": "FLOAT64",
    "BOOLEAN": "BOOL",
    "BLOB": "BYTES",
    "VARIANT": "a value of an event",
}
_TYPE: Final = re.compile(r"\b(?:" + "|".join(_TYPES) + r")\b")
# The name of a column that holds a path of an event, and how it is read there.
_PATH_MARK: Final = re.compile(r" (?:text|value|record)$")
# Its advice is for who writes DuckDB's SQL and may change its settings.
_ADVICE: Final = re.compile(r"\s+(?:Use (?:TRY|try|\"?SET)\b|You might need to).*$")

_PATTERN: Final = (
    r"(?:(?:missing [)\]]|unexpected \)|no argument for repetition operator|bad repetition operator|invalid perl operator"
    r"|invalid escape sequence|invalid character class(?: range)?|invalid repetition size|invalid named capture group)"
    r": .*|trailing \\.*)"
)

Reworder = Callable[[re.Match[str]], str]


def _ungrouped(match: re.Match[str]) -> str:
    return f"The SELECT list expression references {_name(match[1])} which is neither grouped nor aggregated"


def _no_signature(match: re.Match[str]) -> str:
    return f"No matching signature for {_typed(match[1])}"


def _not_compared(match: re.Match[str]) -> str:
    return f"No matching signature for the comparison of {_typed(match[1])} and {_typed(match[2])}"


def _plain(sentence: str) -> Reworder:
    return lambda match: match.expand(sentence)


_SENTENCES: Final[tuple[tuple[re.Pattern[str], Reworder], ...]] = tuple(
    (re.compile(pattern), reworder)
    for pattern, reworder in (
        (r'column "(.*)" must appear in the GROUP BY clause.*', _ungrouped),
        (r"No function matches the given name and argument types '(.*)'.*", _no_signature),
        (r"Cannot compare values of type (.*) and type (.*) - an explicit cast is required.*", _not_compared),
        (r"Division by zero in expression .*", _plain("Division by zero")),
        (r"More than one row returned by a subquery.*", _plain("Scalar subquery produced more than one element")),
        (
            r"(WHERE|QUALIFY|JOIN|GROUP BY) clause cannot contain aggregates.*",
            _plain(r"Aggregates are not allowed in \1"),
        ),
        (r"aggregate function calls cannot be nested.*", _plain("Aggregations of aggregations are not allowed")),
        (r"Failure in decode: .*", _plain("The bytes are no valid UTF-8")),
        (r'invalid timestamp field format: "(.*)", expected format.*', _plain(r'Invalid timestamp: "\1"')),
        (r'timestamp field value out of range: "(.*)".*', _plain(r'Invalid timestamp: "\1"')),
        (r'Values list ".*" does not have a column named "(.*)".*', _plain(r'"\1" is unknown here.')),
        (f"({_PATTERN})", _plain(r"Cannot parse regular expression: \1")),
    )
)


def reworded(sentence: str) -> str:
    for pattern, reworder in _SENTENCES:
        match = pattern.fullmatch(sentence)
        if match:
            return reworder(match)
    return _ADVICE.sub("", sentence)


def _typed(text: str) -> str:
    return _TYPE.sub(lambda match: _TYPES[match[0]], text)


def _name(column: str) -> str:
    """`metadata.""n"" text` is the column that we made of the path metadata.n."""
    return _PATH_MARK.sub("", column).replace('"', "")
