"""Explanations of failed queries by what their author meant: foreign spellings, LQL, and misspelled words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import (
    NOT_COMPILED,
    CompilerBroke,
    Fault,
    QueryFault,
    QueryRefused,
    QuerySyntax,
    QueryUnsupported,
    UnknownName,
)
from cordwood.sql.dialects.forms import Found, found_forms
from cordwood.sql.dialects.functions import FOREIGN, MOVING, UNIT_FIRST, calls, instead
from cordwood.sql.dialects.signatures import SIGNATURES
from cordwood.sql.dialects.source import Source
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.dialects.units import unit
from cordwood.sql.permitted import FUNCTIONS
from cordwood.sql.positions import span_at

# Longer texts are not analysed.
MOST_CHARACTERS: Final = 32_000

_EXPLAINED: Final = (CompilerBroke, QuerySyntax, QueryRefused, QueryUnsupported, UnknownName)
_LQL: Final = re.compile(r'-?\(?-?(?:[\w$-]+|"[^"]*")(?:\.(?:[\w$-]+|"[^"]*"))*:(?!:)\S', re.ASCII)
_CLAUSES: Final = ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "JOIN", "WITH", "QUALIFY")
_BEGINS: Final = frozenset(["SELECT", "WITH", "FROM", "("])
_AGGREGATES: Final = frozenset(
    "COUNT COUNTIF SUM AVG MIN MAX ANY_VALUE ARRAY_AGG STRING_AGG APPROX_COUNT_DISTINCT".split()
)
_MISSING: Final = re.compile(
    r"^Syntax error: (?:Invalid expression / Unexpected token|Required keyword: '\w+' missing)"
)


@contextmanager
def explaining(text: str) -> Iterator[None]:
    """Replace an error of the block with a better explanation, where the text shows what was meant."""
    try:
        yield
    except NOT_COMPILED as fault:
        told = explained(fault, text)
        if told is fault:
            raise
        raise told from fault


def explained(fault: Fault, text: str) -> Fault:
    """Return the error, or a better one for the first foreign spelling in the text, with what to write instead."""
    if not isinstance(fault, _EXPLAINED) or len(text) > MOST_CHARACTERS:
        return fault
    if _is_lql(fault, text):
        return QuerySyntax("This is LQL, and it was sent as sql=.", hint="Send it as lql=.", span=span_at(text, 0))
    source = Source(text)
    first = min(_findings(source), key=lambda found: found[0].at, default=None)
    if first is not None:
        found, kind = first
        return kind(found.message, hint=found.hint, span=span_at(text, found.at))
    return _misspelled(fault, source) or _named_elsewhere(fault, source) or _plainer(fault)


def _findings(source: Source) -> Iterator[tuple[Found, type[QueryFault]]]:
    for form in found_forms(source):
        yield form, QuerySyntax
    for call in _foreign_calls(source):
        yield call, QueryRefused
    for call in _wrong_calls(source):
        yield call, QuerySyntax


def _foreign_calls(source: Source) -> Iterator[Found]:
    for at, word in calls(source):
        if word.text in FOREIGN and word.text not in FUNCTIONS:
            written = instead(word.text, source.arguments(at + 1), FOREIGN[word.text])
            yield Found(word.start, f'"{source.spelled(at, at)}" is not a function of BigQuery.', f"Write {written}.")


def _wrong_calls(source: Source) -> Iterator[Found]:
    """Yield calls of BigQuery's functions with arguments in another dialect's order, or with too few or too many."""
    for at, word in calls(source):
        arguments = source.arguments(at + 1)
        if word.text in UNIT_FIRST and _is_unit_first(arguments):
            hint = instead(word.text, arguments, UNIT_FIRST[word.text])
            yield Found(word.start, f"{word.text} takes its unit last, and without quotes.", f"Write {hint}.")
        elif word.text in SIGNATURES and source.closing(at + 1) is not None:
            yield from _miscounted(word.text, word.start, arguments)
        if word.text in MOVING and len(arguments) == 2 and arguments[1].strip("'\"").lstrip("+-").isdigit():
            hint = f"Write {word.text}({arguments[0]}, INTERVAL {arguments[1]} HOUR), or with another unit."
            yield Found(word.start, f"{word.text} takes an INTERVAL.", hint)


def _is_unit_first(arguments: list[str]) -> bool:
    """Return whether the first argument names a unit, where BigQuery has the unit last."""
    return len(arguments) > 1 and unit(arguments[0]) is not None and unit(arguments[-1]) is None


def _miscounted(name: str, start: int, arguments: list[str]) -> Iterator[Found]:
    least, most, written = SIGNATURES[name]
    count = len(arguments)
    if not least <= count <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        noun = "argument" if wanted == "1" else "arguments"
        yield Found(start, f"{name} takes {wanted} {noun}, not {count}.", f"Write {written}.")


def _is_lql(fault: Fault, text: str) -> bool:
    """Return whether the text is LQL and does not begin like SQL."""
    words = text.split()
    begins_as_sql = not words or words[0].upper() in _BEGINS
    return isinstance(fault, QuerySyntax) and not begins_as_sql and any(map(_LQL.match, words))


def _misspelled(fault: Fault, source: Source) -> QueryFault | None:
    """Find a misspelled keyword at the word where the parser stopped, or at one of the two before it."""
    if not isinstance(fault, QuerySyntax) or fault.hint or fault.span is None:
        return None
    places = [at for at, word in enumerate(source.words) if span_at(source.text, word.start) == fault.span]
    for at in (at for place in places[:1] for at in (place, place - 1, place - 2) if at >= 0):
        word = source.words[at]
        keyword = nearest(word.text, _CLAUSES) if word.is_name and word.text not in _CLAUSES else None
        if keyword:
            spelled = source.spelled(at, at)
            said = f'Syntax error: unexpected "{spelled[:40]}".'
            return QuerySyntax(said, hint=f"Did you mean {keyword}?", span=span_at(source.text, word.start))
    return None


def _named_elsewhere(fault: Fault, source: Source) -> QueryFault | None:
    """Find a name that is a value in another dialect, or an alias that is not visible at that place."""
    if not isinstance(fault, UnknownName) or fault.span is None:
        return None
    at = next((at for at, word in enumerate(source.words) if span_at(source.text, word.start) == fault.span), None)
    if at is None:
        return None
    word = source.words[at]
    if "{" not in FOREIGN.get(word.text, ("{",))[-1]:
        written = instead(word.text, [], FOREIGN[word.text])
        return UnknownName(fault.message, hint=f"Write {written}.", span=fault.span)
    value = _aliased(source, at)
    if value is None:
        return None
    hint = (
        f"It is an alias of the SELECT, which is made later: write {value}, or filter by it in a query around this one."
    )
    if value.partition("(")[0].upper() in _AGGREGATES:
        hint = f"It is an aggregate, which is made after WHERE: filter with HAVING {word.text.lower()} after GROUP BY."
    return UnknownName(fault.message, hint=hint, span=fault.span)


def _aliased(source: Source, at: int) -> str | None:
    """Return the expression that has this word as its alias after AS."""
    name, words = source.words[at].text, source.words
    for index in range(1, len(words) - 1):
        if words[index].text == "AS" and words[index + 1].text == name and index + 1 != at:
            return source.operand_before(index)
    return None


def _plainer(fault: Fault) -> Fault:
    """Rewrite the parser's error about an unexpected word as a sentence."""
    if isinstance(fault, QuerySyntax):
        fault.message = _MISSING.sub(_in_words, fault.message)
    return fault


def _in_words(found: re.Match[str]) -> str:
    return "Syntax error: unexpected word" if "Unexpected" in found[0] else "Syntax error: an expression is missing"
