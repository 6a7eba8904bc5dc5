"""A table of operators and clauses of other dialects: their words, and what BigQuery writes instead.

In a row, `NUMBER` and `TEXT` match any literal of their kind. In its hint, `{left}` and `{right}` are the operands
around the words, `{inside}` is the rest within the parentheses, and `{1}` is the second of the words as written.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from cordwood.sql.dialects.source import Source, Word
from cordwood.sql.dialects.units import interval

_HOLE: Final = re.compile(r"\{(\w+)\}")
_OPERATOR: Final = "an operator"
_CLAUSE: Final = "a clause"


class Match(msgspec.Struct, frozen=True):
    """A row's match in a query: the first word and the number of words."""

    source: Source
    at: int
    length: int

    @property
    def left(self) -> str:
        return self.source.operand_before(self.at) or "value"

    @property
    def right(self) -> str:
        return self.source.operand_after(self.at + self.length - 1) or "value"

    @property
    def inside(self) -> str:
        return self.source.inside(self.at + self.length - 1) or "value"

    def word(self, index: int) -> str:
        return self.source.spelled(self.at + index, self.at + index)


class Form(msgspec.Struct, frozen=True):
    """A row of the table. `what` names the construct; `said`, if given, replaces the whole message."""

    words: tuple[str, ...]
    hint: str | Callable[[Match], str]
    what: str = _OPERATOR
    said: str = ""


def _insensitive(match: Match) -> str:
    right = match.right
    pattern = f"r'(?i){right[1:]}" if right[:1] in "'\"" else f"CONCAT('(?i)', {right})"
    return f"REGEXP_CONTAINS({match.left}, {pattern})"


def _json_value(match: Match) -> str:
    """Write a chain of JSON operators as one JSON_VALUE with a path."""
    source, steps, at = match.source, [], match.at
    while at + 1 < len(source.words) and source.words[at].text in ("->", "->>", "#>", "#>>"):
        steps.append(source.spelled(at + 1, at + 1).strip("'\"{}").replace(",", "."))
        at += 2
    path = ".".join(steps)
    return f"Write {match.left}.{path} for a field of an event, JSON_VALUE({match.left}, '$.{path}') for a JSON text."


def _filtered(match: Match) -> str:
    """Write COUNT(*) FILTER (WHERE x) as COUNTIF(x), and other filtered aggregates with IF."""
    call = match.source.operand_before(match.at + 1) or "COUNT(*)"
    name, _, arguments = call.removesuffix(")").partition("(")
    if name.upper() == "COUNT" and arguments.strip() == "*":
        return f"Write COUNTIF({match.inside})."
    return f"Write {name}(IF({match.inside}, {arguments}, NULL))."


def _quantile(match: Match) -> str:
    """Write PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x) with APPROX_QUANTILES."""
    share = match.source.operand_before(match.at + 1) or ""
    percent = re.search(r"\((0?\.\d+|1)\)", share)
    offset = round(float(percent[1]) * 100) if percent else 50
    return f"Write APPROX_QUANTILES({match.inside}, 100)[OFFSET({offset})]."


def _quoted_interval(match: Match) -> str:
    return f"Write {interval(match.word(1)) or 'INTERVAL 1 DAY'}."


def _bare_interval(match: Match) -> str:
    return f"Write {interval(match.word(1) + ' ' + match.word(2)) or 'INTERVAL 1 HOUR'}."


_NO_PARTS: Final = {
    "EPOCH": "UNIX_SECONDS({inside})",
    "DOW": "EXTRACT(DAYOFWEEK FROM {inside})",
    "DOY": "EXTRACT(DAYOFYEAR FROM {inside})",
    "MILLENNIUM": "EXTRACT(YEAR FROM {inside})",
    "CENTURY": "EXTRACT(YEAR FROM {inside})",
    "MILLISECONDS": "EXTRACT(MILLISECOND FROM {inside})",
    "MICROSECONDS": "EXTRACT(MICROSECOND FROM {inside})",
    **{f"{part}S": f"EXTRACT({part} FROM {{inside}})" for part in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")},
}
_PLACED_VALUE: Final = "Write the value itself, or a parameter of the endpoint by its name, as in @project."
_NO_PARAMETER: Final = "Parameters are named, as in @project."

FORMS: Final[tuple[Form, ...]] = (
    Form(("NOT", "ILIKE"), "Write NOT LOWER({left}) LIKE LOWER({right})."),
    Form(("ILIKE",), "Write LOWER({left}) LIKE LOWER({right})."),
    Form(("~~*",), "Write LOWER({left}) LIKE LOWER({right})."),
    Form(("~~",), "Write {left} LIKE {right}."),
    Form(("!", "~"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    Form(("!~",), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    Form(("!", "~*"), lambda match: f"Write NOT {_insensitive(match)}."),
    Form(("!~*",), lambda match: f"Write NOT {_insensitive(match)}."),
    Form(("~*",), lambda match: f"Write {_insensitive(match)}."),
    Form(("=~",), "Write REGEXP_CONTAINS({left}, {right})."),
    Form(("NOT", "REGEXP"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    Form(("NOT", "RLIKE"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    Form(("SIMILAR", "TO"), "Write REGEXP_CONTAINS({left}, {right})."),
    Form(("==",), "Write =."),
    Form(("!", "=", "="), "Write != or <>."),
    Form(("!==",), "Write != or <>."),
    Form(("<=>",), "Write IS NOT DISTINCT FROM."),
    Form(("&&",), "Write AND."),
    Form(("%",), "Write MOD({left}, {right})."),
    Form(("->>",), _json_value),
    Form(("->",), _json_value),
    Form(("#>>",), _json_value),
    Form(("#>",), _json_value),
    Form(("@>",), "Write {right} IN UNNEST({left})."),
    Form((")", "FILTER", "(", "WHERE"), _filtered, said="FILTER is not a clause of BigQuery."),
    Form((")", "WITHIN", "GROUP", "(", "ORDER", "BY"), _quantile, said="WITHIN GROUP is not a clause of BigQuery."),
    Form(("INTERVAL", "TEXT"), _quoted_interval, said="The unit of an INTERVAL stands outside of the quotes."),
    Form((",", "NUMBER", "UNIT", ")"), _bare_interval, said="A time is moved by an INTERVAL."),
    *(
        Form(("EXTRACT", "(", part, "FROM"), f"Write {written}.", said=f"{part} is not a part of a time in BigQuery.")
        for part, written in _NO_PARTS.items()
    ),
    Form(("FETCH", "FIRST", "NUMBER"), "Write LIMIT {2} at the end.", _CLAUSE),
    Form(("FETCH", "NEXT", "NUMBER"), "Write LIMIT {2} at the end.", _CLAUSE),
    Form(("FETCH", "FIRST", "ROW"), "Write LIMIT 1 at the end.", _CLAUSE),
    Form(
        ("SELECT", "TOP", "NUMBER"), "Write LIMIT {2} at the end of the query.", said="TOP is not a clause of BigQuery."
    ),
    Form(("LIMIT", "NUMBER", ",", "NUMBER"), "Write LIMIT {3} OFFSET {1}.", said="LIMIT takes one number."),
    Form(
        ("DISTINCT", "ON", "("),
        "Keep one row of each with QUALIFY ROW_NUMBER() OVER (PARTITION BY {inside}) = 1.",
        _CLAUSE,
    ),
    Form(("WITH", "ORDINALITY"), "Write WITH OFFSET AS position.", _CLAUSE),
    Form(("WITH", "ROLLUP"), "Write GROUP BY ROLLUP (…).", _CLAUSE),
    Form(("EXCLUDE", "("), "Write EXCEPT ({inside}).", _CLAUSE),
    Form(("MINUS", "SELECT"), "Write EXCEPT DISTINCT SELECT.", "a set operation"),
    Form(("UNION", "SELECT"), "Write UNION ALL or UNION DISTINCT.", said="UNION says whether equal rows are kept."),
    Form(("INTERSECT", "SELECT"), "Write INTERSECT DISTINCT.", said="INTERSECT is written with DISTINCT."),
    Form(("EXCEPT", "SELECT"), "Write EXCEPT DISTINCT.", said="EXCEPT is written with DISTINCT."),
    Form(("PREWHERE",), "Write WHERE.", _CLAUSE),
    Form(("LATERAL", "VIEW"), "Write CROSS JOIN UNNEST(…).", _CLAUSE),
    Form(("ARRAY", "JOIN"), "Write CROSS JOIN UNNEST(…).", _CLAUSE),
    Form(("DISTINCT", ")"), "Write COUNT(DISTINCT value).", said="An expression is missing after DISTINCT."),
    Form(("?",), _PLACED_VALUE, said=f'"?" is not a parameter of BigQuery. {_NO_PARAMETER}'),
    Form(("{", "{"), _PLACED_VALUE, said=f"A template's variable is not read here. {_NO_PARAMETER}"),
    Form(("$", "{"), _PLACED_VALUE, said=f"A template's variable is not read here. {_NO_PARAMETER}"),
)
_BY_FIRST: Final[Mapping[str, tuple[Form, ...]]] = {
    first: tuple(form for form in FORMS if form.words[0] == first) for first in {form.words[0] for form in FORMS}
}
# Words after which `:name` or `$1` is a parameter in another dialect.
_BEFORE_VALUE: Final = frozenset("= < > <= >= != <> ( , + - * / AND OR LIKE IN BETWEEN LIMIT OFFSET WHERE NOT".split())
# Infix operators of other dialects whose words are names in BigQuery.
_INFIX: Final[Mapping[str, Form]] = {
    word: Form((word,), "Write REGEXP_CONTAINS({left}, {right}).") for word in ("~", "REGEXP", "RLIKE", "GLOB")
} | {"XOR": Form(("XOR",), "Write {left} != {right}.")}
_TYPOGRAPHIC: Final = re.compile("[\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb]")
_DASHES: Final = frozenset("\u2013\u2014\u2212")


class Found(msgspec.Struct, frozen=True):
    """A foreign spelling in a query: its position, the message, and the hint."""

    at: int
    message: str
    hint: str


def found_forms(source: Source) -> Iterator[Found]:
    """Yield every row of the table that matches the query, and foreign signs that have no row."""
    for at, word in enumerate(source.words):
        form = _form_at(source, at)
        if form is not None:
            yield _told(form, Match(source, at, len(form.words)))
        else:
            yield from _sign(source, at, word)


def _form_at(source: Source, at: int) -> Form | None:
    word = source.words[at]
    if word.is_text:
        return None
    infix = _INFIX.get(word.text)
    if infix is not None and source.operand_before(at) and source.operand_after(at):
        return infix
    return next((form for form in _BY_FIRST.get(word.text, ()) if _fits(form, source, at)), None)


def _fits(form: Form, source: Source, at: int) -> bool:
    words = source.words[at : at + len(form.words)]
    return len(words) == len(form.words) and all(map(_is_like, words, form.words))


def _is_like(word: Word, wanted: str) -> bool:
    if wanted == "NUMBER":
        return word.is_number
    if wanted == "TEXT":
        return word.is_text and interval(word.text) is not None
    if wanted == "UNIT":
        return word.is_name and interval(f"1 {word.text}") is not None
    return word.text == wanted and not word.is_text


def _told(form: Form, match: Match) -> Found:
    last = match.at + match.length - 1
    begins = match.source.words[match.at + (form.words[0] in (")", ","))].start
    said = (
        form.said
        or f'"{match.source.spelled(match.at, last)[:40].removesuffix("(").rstrip()}" is not {form.what} of BigQuery.'
    )
    hint = form.hint(match) if callable(form.hint) else _HOLE.sub(lambda hole: _part(match, hole[1]), form.hint)
    return Found(begins, said, hint)


def _part(match: Match, name: str) -> str:
    return match.word(int(name)) if name.isdigit() else str(getattr(match, name))


def _sign(source: Source, at: int, word: Word) -> Iterator[Found]:
    spelled = source.spelled(at, at)
    if word.is_text:
        return
    mark = _TYPOGRAPHIC.search(spelled)
    if mark:
        what = f"The typographic quote {mark[0]} is not a quote of SQL."
        yield Found(word.start, what, "Write ' around a text, and nothing or ` around a name.")
    elif spelled in _DASHES:
        yield Found(
            word.start, f"The dash {spelled} is not an operator of SQL.", "Write - for minus, or -- before a comment."
        )
    elif re.fullmatch(r"\$\d+", spelled):
        yield Found(word.start, f'"{spelled}" is not a parameter of BigQuery. {_NO_PARAMETER}', _PLACED_VALUE)
    elif spelled == ":" and at > 0 and at + 1 < len(source.words) and source.words[at + 1].is_name:
        yield _colon(source, at)


def _colon(source: Source, at: int) -> Found:
    """Explain a `:name` parameter or a `value:path` field."""
    name = source.operand_after(at) or "name"
    word, before = source.words[at], source.words[at - 1]
    if before.text in _BEFORE_VALUE:
        hint = f"Write @{name} for a parameter of the endpoint, or the value itself."
        return Found(word.start, f'":{name}" is not a parameter of BigQuery. {_NO_PARAMETER}', hint)
    value = source.operand_before(at) or "value"
    return Found(word.start, '":" is not an operator of BigQuery.', f"Write {value}.{name} for a field of an event.")
