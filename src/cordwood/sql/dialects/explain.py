"""Explanations of likely mistakes: better errors for queries that fail, and notices for valid queries.

A query that does not compile may contain syntax of another dialect, be LQL, or have misspelled words. A valid query may
have a column in double quotes, or a comparison with NULL. Such a query is run, and a notice in its receipt says what
the author may have meant. If a query fails while it runs, engines report no position, so the position is guessed from
the message.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from typing import Final

from cordwood.errors import (
    COMPILE_FAULTS,
    BadQuerySyntax,
    CompilerFailed,
    Fault,
    QueryFault,
    QueryRefused,
    QueryUnsupported,
    Span,
    UnknownNameInQuery,
)
from cordwood.sql.diagnostics import most_similar_name, span_at
from cordwood.sql.dialects.foreign_syntax import ForeignSyntaxFinding, find_foreign_syntax
from cordwood.sql.dialects.functions import (
    ARGUMENT_COUNTS_BY_FUNCTION,
    FOREIGN_FUNCTION_TEMPLATES,
    INTERVAL_ARITHMETIC_FUNCTIONS,
    REPLACEMENTS_OF_UNIT_FIRST_CALLS,
    bigquery_time_unit,
    find_function_calls,
    replacement_call,
)
from cordwood.sql.dialects.query_tokens import QueryToken, QueryTokens
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS

# The maximum length of a text that is analysed for mistakes.
_MAX_EXPLAINED_TEXT_CHARACTERS: Final = 32_000

_EXPLAINED_FAULTS: Final = (CompilerFailed, BadQuerySyntax, QueryRefused, QueryUnsupported, UnknownNameInQuery)
# A word of LQL: a path, a colon and a value, such as `metadata.level:error`.
_LQL_PATTERN: Final = re.compile(r'-?\(?-?(?:[\w$-]+|"[^"]*")(?:\.(?:[\w$-]+|"[^"]*"))*:(?!:)\S', re.ASCII)
_CLAUSE_KEYWORDS: Final = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "UNION",
    "JOIN",
    "WITH",
    "QUALIFY",
)
_SQL_FIRST_WORDS: Final = frozenset(["SELECT", "WITH", "FROM", "("])
_AGGREGATE_NAMES: Final = frozenset(
    "COUNT COUNTIF SUM AVG MIN MAX ANY_VALUE ARRAY_AGG STRING_AGG APPROX_COUNT_DISTINCT".split()
)


@contextmanager
def explain_raised_faults(text: str) -> Iterator[None]:
    """Replace an error raised in the `with` block by a better explanation, if the query's text suggests one."""
    try:
        yield
    except COMPILE_FAULTS as fault:
        explanation = explain_fault(fault, text)
        if explanation is fault:
            raise
        raise explanation from fault


def explain_fault(fault: Fault, text: str) -> Fault:
    """Return an error that explains the likely mistake in the text; the same error if no mistake is recognised.

    The first of these mistakes that is found is explained: LQL sent as SQL, syntax of another dialect, a misspelled
    keyword, an unknown name.
    """
    if not isinstance(fault, _EXPLAINED_FAULTS) or len(text) > _MAX_EXPLAINED_TEXT_CHARACTERS:
        return fault
    if _is_probably_lql(fault, text):
        return BadQuerySyntax("This is LQL, and it was sent as sql=.", hint="Send it as lql=.", span=span_at(text, 0))
    source = QueryTokens(text)
    first = min(_find_foreign_spellings(source), key=lambda spelling: spelling[0].text_offset, default=None)
    if first is not None:
        spelling, kind = first
        return kind(spelling.message, hint=spelling.hint, span=span_at(text, spelling.text_offset))
    return _explain_misspelled_keyword(fault, source) or _explain_unknown_name(fault, source) or fault


def _find_foreign_spellings(source: QueryTokens) -> Iterator[tuple[ForeignSyntaxFinding, type[QueryFault]]]:
    for form in find_foreign_syntax(source):
        yield form, BadQuerySyntax
    for call in _find_foreign_function_calls(source):
        yield call, QueryRefused
    for call in _find_calls_with_wrong_arguments(source):
        yield call, BadQuerySyntax


def _find_foreign_function_calls(source: QueryTokens) -> Iterator[ForeignSyntaxFinding]:
    for index, word in find_function_calls(source):
        if word.text in FOREIGN_FUNCTION_TEMPLATES and word.text not in PERMITTED_FUNCTIONS:
            replacement = replacement_call(
                word.text, source.call_arguments(index + 1), FOREIGN_FUNCTION_TEMPLATES[word.text]
            )
            yield ForeignSyntaxFinding(
                word.start,
                f'"{source.text_between(index, index)}" is not a function of BigQuery.',
                f"Write {replacement}.",
            )


def _find_calls_with_wrong_arguments(source: QueryTokens) -> Iterator[ForeignSyntaxFinding]:
    """Yield findings for BigQuery functions with the wrong number of arguments, or with another dialect's arguments."""
    for index, word in find_function_calls(source):
        arguments = source.call_arguments(index + 1)
        if word.text in REPLACEMENTS_OF_UNIT_FIRST_CALLS and _has_unit_as_first_argument(arguments):
            hint = replacement_call(word.text, arguments, REPLACEMENTS_OF_UNIT_FIRST_CALLS[word.text])
            yield ForeignSyntaxFinding(
                word.start, f"{word.text} takes its unit last, and without quotes.", f"Write {hint}."
            )
        elif word.text in ARGUMENT_COUNTS_BY_FUNCTION and source.find_closing_bracket(index + 1) is not None:
            yield from _find_wrong_argument_count(word.text, word.start, arguments)
        if (
            word.text in INTERVAL_ARITHMETIC_FUNCTIONS
            and len(arguments) == 2
            and arguments[1].strip("'\"").lstrip("+-").isdigit()
        ):
            hint = f"Write {word.text}({arguments[0]}, INTERVAL {arguments[1]} HOUR), or with another unit."
            yield ForeignSyntaxFinding(word.start, f"{word.text} takes an INTERVAL.", hint)


def _has_unit_as_first_argument(arguments: list[str]) -> bool:
    """Return whether the first argument is a unit of time, which BigQuery expects as the last argument."""
    return (
        len(arguments) > 1
        and bigquery_time_unit(arguments[0]) is not None
        and bigquery_time_unit(arguments[-1]) is None
    )


def _find_wrong_argument_count(name: str, start: int, arguments: list[str]) -> Iterator[ForeignSyntaxFinding]:
    minimum, maximum, example = ARGUMENT_COUNTS_BY_FUNCTION[name]
    count = len(arguments)
    if not minimum <= count <= maximum:
        expected = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
        noun = "argument" if expected == "1" else "arguments"
        yield ForeignSyntaxFinding(start, f"{name} takes {expected} {noun}, not {count}.", f"Write {example}.")


def _is_probably_lql(fault: Fault, text: str) -> bool:
    """Return whether the text is LQL and does not begin like SQL."""
    words = text.split()
    begins_as_sql = not words or words[0].upper() in _SQL_FIRST_WORDS
    return isinstance(fault, BadQuerySyntax) and not begins_as_sql and any(map(_LQL_PATTERN.match, words))


def _explain_misspelled_keyword(fault: Fault, source: QueryTokens) -> QueryFault | None:
    """Return an error for a misspelled keyword at the word where the parser stopped, or at one of the two before it."""
    if not isinstance(fault, BadQuerySyntax) or fault.hint or fault.span is None:
        return None
    positions = [index for index, word in enumerate(source.tokens) if span_at(source.text, word.start) == fault.span]
    for index in (
        index for position in positions[:1] for index in (position, position - 1, position - 2) if index >= 0
    ):
        word = source.tokens[index]
        keyword = (
            most_similar_name(word.text, _CLAUSE_KEYWORDS)
            if word.is_name and word.text not in _CLAUSE_KEYWORDS
            else None
        )
        if keyword:
            source_text = source.text_between(index, index)
            message = f'Syntax error: unexpected "{source_text[:40]}".'
            return BadQuerySyntax(message, hint=f"Did you mean {keyword}?", span=span_at(source.text, word.start))
    return None


def _explain_unknown_name(fault: Fault, source: QueryTokens) -> QueryFault | None:
    """Explain an unknown name: another dialect's function written without parentheses, or an alias used too early."""
    if not isinstance(fault, UnknownNameInQuery) or fault.span is None:
        return None
    index = next(
        (index for index, word in enumerate(source.tokens) if span_at(source.text, word.start) == fault.span), None
    )
    if index is None:
        return None
    word = source.tokens[index]
    if "{" not in FOREIGN_FUNCTION_TEMPLATES.get(word.text, ("{",))[-1]:
        replacement = replacement_call(word.text, [], FOREIGN_FUNCTION_TEMPLATES[word.text])
        return UnknownNameInQuery(fault.message, hint=f"Write {replacement}.", span=fault.span)
    value = _expression_text_of_alias(source, index)
    if value is None:
        return None
    hint = (
        f"It is an alias of the SELECT, which is made later: write {value}, or filter by it in a query around this one."
    )
    if value.partition("(")[0].upper() in _AGGREGATE_NAMES:
        hint = f"It is an aggregate, which is made after WHERE: filter with HAVING {word.text.lower()} after GROUP BY."
    return UnknownNameInQuery(fault.message, hint=hint, span=fault.span)


def _expression_text_of_alias(source: QueryTokens, word_index: int) -> str | None:
    """Return the text of the expression whose alias is this word, as in `expression AS word`; None if there is none."""
    name, words = source.tokens[word_index].text, source.tokens
    for index in range(1, len(words) - 1):
        if words[index].text == "AS" and words[index + 1].text == name and index + 1 != word_index:
            return source.operand_before(index)
    return None


_MAX_MISTAKE_NOTICES: Final = 5
_NULL_COMPARISON_OPERATORS: Final = {"=": "IS NULL", "!=": "IS NOT NULL", "<>": "IS NOT NULL"}


def find_likely_mistakes(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return notices for the receipt of a valid query; `columns` are the visible column names in lower case."""
    if len(text) > _MAX_EXPLAINED_TEXT_CHARACTERS or not ('"' in text or "null" in text.lower()):
        return ()
    source = QueryTokens(text)
    return tuple(
        dict.fromkeys([*_write_quoted_column_notices(source, columns), *_write_null_comparison_notices(source)])
    )[:_MAX_MISTAKE_NOTICES]


def _write_quoted_column_notices(source: QueryTokens, columns: Collection[str]) -> Iterator[str]:
    for word in source.tokens:
        source_text = source.text[word.start : word.end]
        name = source_text[1:-1]
        if word.is_text_literal and source_text.startswith('"') and name.lower() in columns:
            yield f"{source_text} is a text, not a column: write {name}, without quotes, for the column"


def _write_null_comparison_notices(source: QueryTokens) -> Iterator[str]:
    for operator, word in pairwise(source.tokens):
        if word.text == "NULL" and operator.text in _NULL_COMPARISON_OPERATORS:
            yield f"{operator.text} NULL is never true: write {_NULL_COMPARISON_OPERATORS[operator.text]}"


_CAST_FUNCTION_NAMES: Final = "CAST SAFE_CAST"
_TIME_CONVERSION_FUNCTION_NAMES: Final = "TIMESTAMP DATE DATETIME TIME CAST"
# Patterns of error messages, each with the functions and operators that may raise them; the first match is used.
_CAUSING_WORDS_BY_MESSAGE_PATTERN: Final = tuple(
    (re.compile(pattern), frozenset(words.split()))
    for pattern, words in (
        (r"Failed to parse input", "PARSE_TIMESTAMP PARSE_DATE PARSE_DATETIME PARSE_TIME CAST"),
        (r"regular expression|REGEXP", "REGEXP_CONTAINS REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_REPLACE REGEXP_INSTR"),
        (r"[Dd]ivision by zero", "/ DIV MOD"),
        (r"[Oo]verflow|out of (?:the )?range", "+ - * / SUM POW EXP ABS " + _CAST_FUNCTION_NAMES),
        (r"Array index", "["),
        (
            r"Bad (?:int64|bool|double)|NUMERIC|Could not convert|cannot be cast|Illegal conversion|Invalid cast",
            _CAST_FUNCTION_NAMES,
        ),
        (r"INTERVAL value", _CAST_FUNCTION_NAMES),
        (r"zone", "FORMAT_TIMESTAMP PARSE_TIMESTAMP TIMESTAMP DATETIME DATE TIME EXTRACT TIMESTAMP_TRUNC STRING ZONE"),
        (r"Invalid (?:TIMESTAMP|DATE|DATETIME|TIME|timestamp|date)", _TIME_CONVERSION_FUNCTION_NAMES),
        (r"JSON", "PARSE_JSON INT64 FLOAT64 BOOL STRING JSON_OBJECT JSON_SET " + _CAST_FUNCTION_NAMES),
        (r"base32|base64|hexadecimal", "FROM_BASE32 FROM_BASE64 FROM_HEX " + _CAST_FUNCTION_NAMES),
        (r"UTF-8", _CAST_FUNCTION_NAMES),
        (r"Sequence|generated array", "GENERATE_ARRAY GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY"),
        (r"[Cc]ode ?point", "CHR CODE_POINTS_TO_STRING CODE_POINTS_TO_BYTES"),
        (r"invalid time", "TIMESTAMP_SECONDS TIMESTAMP_MILLIS TIMESTAMP_MICROS TIME DATE DATETIME"),
        (r"more than one element", "SELECT"),
    )
)
_FUNCTION_NAME_PATTERN: Final = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_FALLIBLE_OPERATORS: Final = frozenset("IN + - * / & | ^ << >> || = < > <= >= != <>".split())
_MAX_ADDITIONAL_FAULT_POSITIONS: Final = 3


@contextmanager
def add_positions_to_raised_faults(text: str | None) -> Iterator[None]:
    """Add a position to each query error raised in the `with` block that has none: where the error may have occurred.

    Engines do not report positions, so the position is guessed from the error message.
    """
    try:
        yield
    except QueryFault as fault:
        if fault.span is not None or text is None or len(text) > _MAX_EXPLAINED_TEXT_CHARACTERS:
            raise
        positions = find_possible_causes(fault.message, text)
        if not positions:
            raise
        raise _copy_with_positions(fault, positions) from fault


def _copy_with_positions(fault: QueryFault, positions: list[Span]) -> QueryFault:
    """Return a copy of the error with positions.

    The original is not changed, because it may be shared by callers whose queries have different texts.
    """
    located = copy(fault)
    located.span = positions[0]
    others = ", ".join(map(str, positions[1 : 1 + _MAX_ADDITIONAL_FAULT_POSITIONS]))
    if others:
        located.hint = f"{fault.hint or ''} It may also come from {others}.".strip()
    return located


def find_possible_causes(message: str, text: str) -> list[Span]:
    """Return the positions of expressions that may have raised the error, in the order of the text.

    If no expression matches the message, return only the position of the first call, or else of the first operator, or
    else of the second word.
    """
    source = QueryTokens(text)
    named_functions = {word for word in _FUNCTION_NAME_PATTERN.findall(message) if word in PERMITTED_FUNCTIONS}
    causes = next(
        (words for pattern, words in _CAUSING_WORDS_BY_MESSAGE_PATTERN if pattern.search(message)), frozenset[str]()
    )
    causing_words = list(_find_causing_words(source, named_functions)) or list(_find_causing_words(source, causes))
    causing_words = (
        causing_words
        or [word for _, word in find_function_calls(source)][:1]
        or list(_find_causing_words(source, _FALLIBLE_OPERATORS))[:1]
        or list(source.tokens[1:2])
    )
    return [span_at(text, word.start) for word in causing_words]


def _find_causing_words(source: QueryTokens, causes: frozenset[str] | set[str]) -> Iterator[QueryToken]:
    for index, word in enumerate(source.tokens):
        if not word.is_text_literal and word.text in causes and _begins_fallible_expression(source, index):
            yield word


def _begins_fallible_expression(source: QueryTokens, index: int) -> bool:
    """Return whether the word begins an expression that can fail: a sub-query, subscript, call or operator."""
    word = source.tokens[index]
    previous = source.tokens[index - 1] if index > 0 else None
    if word.text == "SELECT":
        return previous is not None and previous.text == "("
    if word.text == "[":
        return previous is not None and (previous.is_name or previous.text in (")", "]"))
    following = source.tokens[index + 1].text if index + 1 < len(source.tokens) else ""
    return not word.text.isidentifier() or following == "("
