"""Positions of run-time errors, guessed from the error message because engines report no position."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Final

from cordwood.errors import QueryFault, Span
from cordwood.sql.dialects.explain import MAX_CHARACTERS
from cordwood.sql.dialects.functions import find_calls
from cordwood.sql.dialects.source import QueryToken, QueryTokens
from cordwood.sql.permitted import FUNCTIONS
from cordwood.sql.positions import span_at

_CAST_FUNCTIONS: Final = "CAST SAFE_CAST"
_TIME_FUNCTIONS: Final = "TIMESTAMP DATE DATETIME TIME CAST"
# Patterns of error messages, and the functions and operators that may raise them; the first matching pattern counts.
_CAUSES_BY_MESSAGE: Final = tuple(
    (re.compile(pattern), frozenset(words.split()))
    for pattern, words in (
        (r"Failed to parse input", "PARSE_TIMESTAMP PARSE_DATE PARSE_DATETIME PARSE_TIME CAST"),
        (r"regular expression|REGEXP", "REGEXP_CONTAINS REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_REPLACE REGEXP_INSTR"),
        (r"[Dd]ivision by zero", "/ DIV MOD"),
        (r"[Oo]verflow|out of (?:the )?range", "+ - * / SUM POW EXP ABS " + _CAST_FUNCTIONS),
        (r"Array index", "["),
        (
            r"Bad (?:int64|bool|double)|NUMERIC|Could not convert|cannot be cast|Illegal conversion|Invalid cast",
            _CAST_FUNCTIONS,
        ),
        (r"INTERVAL value", _CAST_FUNCTIONS),
        (r"zone", "FORMAT_TIMESTAMP PARSE_TIMESTAMP TIMESTAMP DATETIME DATE TIME EXTRACT TIMESTAMP_TRUNC STRING ZONE"),
        (r"Invalid (?:TIMESTAMP|DATE|DATETIME|TIME|timestamp|date)", _TIME_FUNCTIONS),
        (r"JSON", "PARSE_JSON INT64 FLOAT64 BOOL STRING JSON_OBJECT JSON_SET " + _CAST_FUNCTIONS),
        (r"base32|base64|hexadecimal", "FROM_BASE32 FROM_BASE64 FROM_HEX " + _CAST_FUNCTIONS),
        (r"UTF-8", _CAST_FUNCTIONS),
        (r"Sequence|generated array", "GENERATE_ARRAY GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY"),
        (r"[Cc]ode ?point", "CHR CODE_POINTS_TO_STRING CODE_POINTS_TO_BYTES"),
        (r"invalid time", "TIMESTAMP_SECONDS TIMESTAMP_MILLIS TIMESTAMP_MICROS TIME DATE DATETIME"),
        (r"more than one element", "SELECT"),
    )
)
_FUNCTION_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_OPERATOR_SIGNS: Final = frozenset("IN + - * / & | ^ << >> || = < > <= >= != <>".split())
_MAX_OTHER_POSITIONS: Final = 3


@contextmanager
def add_fault_position(text: str | None) -> Iterator[None]:
    """Add a position to a query error raised in the block: that of the expression which may have raised it."""
    try:
        yield
    except QueryFault as fault:
        if fault.span is not None or text is None or len(text) > MAX_CHARACTERS:
            raise
        positions = find_possible_causes(fault.message, text)
        if not positions:
            raise
        raise _with_positions(fault, positions) from fault


def _with_positions(fault: QueryFault, positions: list[Span]) -> QueryFault:
    """Return a copy of the error with positions; the original may be shared by callers with other texts."""
    located = copy(fault)
    located.span = positions[0]
    others = ", ".join(map(str, positions[1 : 1 + _MAX_OTHER_POSITIONS]))
    if others:
        located.hint = f"{fault.hint or ''} It may also come from {others}.".strip()
    return located


def find_possible_causes(message: str, text: str) -> list[Span]:
    """Return the positions of expressions that may have raised the error, in the order of the text.

    If none matches the message, return the position of a likely expression.
    """
    source = QueryTokens(text)
    named_functions = {word for word in _FUNCTION_NAME.findall(message) if word in FUNCTIONS}
    causes = next((words for pattern, words in _CAUSES_BY_MESSAGE if pattern.search(message)), frozenset[str]())
    causing_words = list(_find_words(source, named_functions)) or list(_find_words(source, causes))
    causing_words = (
        causing_words
        or [word for _, word in find_calls(source)][:1]
        or list(_find_words(source, _OPERATOR_SIGNS))[:1]
        or list(source.words[1:2])
    )
    return [span_at(text, word.start) for word in causing_words]


def _find_words(source: QueryTokens, causes: frozenset[str] | set[str]) -> Iterator[QueryToken]:
    for index, word in enumerate(source.words):
        if not word.is_text and word.text in causes and _may_raise(source, index):
            yield word


def _may_raise(source: QueryTokens, index: int) -> bool:
    """Return whether the word begins an expression that can fail: a sub-query, subscript, call or operator."""
    word = source.words[index]
    previous = source.words[index - 1] if index > 0 else None
    if word.text == "SELECT":
        return previous is not None and previous.text == "("
    if word.text == "[":
        return previous is not None and (previous.is_name or previous.text in (")", "]"))
    following = source.words[index + 1].text if index + 1 < len(source.words) else ""
    return not word.text.isidentifier() or following == "("
