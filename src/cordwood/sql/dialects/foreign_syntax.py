"""Table of operators and clauses of other dialects: the words to match, and a hint with BigQuery's syntax.

Among the words of a row, `NUMBER` matches any number, `TEXT` a quoted interval such as '5 minutes', and `UNIT` a unit
of time. In the hint, `{left}` and `{right}` are the operands before and after the matched words, `{inside}` is the text
after them up to the closing parenthesis, and `{1}` is the second matched word as the author wrote it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from cordwood.sql.dialects.functions import bigquery_interval
from cordwood.sql.dialects.query_tokens import QueryToken, QueryTokens

_PLACEHOLDER_PATTERN: Final = re.compile(r"\{(\w+)\}")
_OPERATOR_PHRASE: Final = "an operator"
_CLAUSE_PHRASE: Final = "a clause"


class ForeignSyntaxMatch(msgspec.Struct, frozen=True):
    """The place in a query where a row of the table matches: the index of the first word, and the number of words."""

    query_tokens: QueryTokens
    first_word_index: int
    word_count: int

    @property
    def left(self) -> str:
        return self.query_tokens.operand_before(self.first_word_index) or "value"

    @property
    def right(self) -> str:
        return self.query_tokens.operand_after(self.first_word_index + self.word_count - 1) or "value"

    @property
    def inside(self) -> str:
        return self.query_tokens.text_inside_brackets(self.first_word_index + self.word_count - 1) or "value"

    def word_text(self, number: int) -> str:
        return self.query_tokens.text_between(self.first_word_index + number, self.first_word_index + number)


class ForeignSyntax(msgspec.Struct, frozen=True):
    """A row of the table: words of another dialect, and a hint with BigQuery's syntax.

    The default error message says that the words are not `construct_phrase` of BigQuery; `construct_phrase` is, for
    example, "a clause". If `message` is set, it replaces the default.
    """

    words: tuple[str, ...]
    hint: str | Callable[[ForeignSyntaxMatch], str]
    construct_phrase: str = _OPERATOR_PHRASE
    message: str = ""


def _case_insensitive_regexp_hint(match: ForeignSyntaxMatch) -> str:
    right = match.right
    pattern = f"r'(?i){right[1:]}" if right[:1] in "'\"" else f"CONCAT('(?i)', {right})"
    return f"REGEXP_CONTAINS({match.left}, {pattern})"


def _json_operator_hint(match: ForeignSyntaxMatch) -> str:
    """Return a hint that replaces a chain of JSON operators by one path, into an event or in a call of JSON_VALUE."""
    source, steps, index = match.query_tokens, [], match.first_word_index
    while index + 1 < len(source.tokens) and source.tokens[index].text in ("->", "->>", "#>", "#>>"):
        steps.append(source.text_between(index + 1, index + 1).strip("'\"{}").replace(",", "."))
        index += 2
    path = ".".join(steps)
    return f"Write {match.left}.{path} for a field of an event, JSON_VALUE({match.left}, '$.{path}') for a JSON text."


def _filtered_aggregate_hint(match: ForeignSyntaxMatch) -> str:
    """Rewrite COUNT(*) FILTER (WHERE x) as COUNTIF(x), and other filtered aggregates with IF."""
    call = match.query_tokens.operand_before(match.first_word_index + 1) or "COUNT(*)"
    name, _, arguments = call.removesuffix(")").partition("(")
    if name.upper() == "COUNT" and arguments.strip() == "*":
        return f"Write COUNTIF({match.inside})."
    return f"Write {name}(IF({match.inside}, {arguments}, NULL))."


def _percentile_hint(match: ForeignSyntaxMatch) -> str:
    """Rewrite PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x) with APPROX_QUANTILES."""
    share = match.query_tokens.operand_before(match.first_word_index + 1) or ""
    percent = re.search(r"\((0?\.\d+|1)\)", share)
    offset = round(float(percent[1]) * 100) if percent else 50
    return f"Write APPROX_QUANTILES({match.inside}, 100)[OFFSET({offset})]."


def _quoted_interval_hint(match: ForeignSyntaxMatch) -> str:
    return f"Write {bigquery_interval(match.word_text(1)) or 'INTERVAL 1 DAY'}."


def _unquoted_interval_hint(match: ForeignSyntaxMatch) -> str:
    return f"Write {bigquery_interval(match.word_text(1) + ' ' + match.word_text(2)) or 'INTERVAL 1 HOUR'}."


_TIME_PART_REPLACEMENTS: Final = {
    "EPOCH": "UNIX_SECONDS({inside})",
    "DOW": "EXTRACT(DAYOFWEEK FROM {inside})",
    "DOY": "EXTRACT(DAYOFYEAR FROM {inside})",
    "MILLENNIUM": "EXTRACT(YEAR FROM {inside})",
    "CENTURY": "EXTRACT(YEAR FROM {inside})",
    "MILLISECONDS": "EXTRACT(MILLISECOND FROM {inside})",
    "MICROSECONDS": "EXTRACT(MICROSECOND FROM {inside})",
    **{f"{part}S": f"EXTRACT({part} FROM {{inside}})" for part in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")},
}
_VALUE_OR_PARAMETER_HINT: Final = "Write the value itself, or a parameter of the endpoint by its name, as in @project."
_NAMED_PARAMETER_HINT: Final = "Parameters are named, as in @project."

FOREIGN_SYNTAX: Final[tuple[ForeignSyntax, ...]] = (
    ForeignSyntax(("NOT", "ILIKE"), "Write NOT LOWER({left}) LIKE LOWER({right})."),
    ForeignSyntax(("ILIKE",), "Write LOWER({left}) LIKE LOWER({right})."),
    ForeignSyntax(("~~*",), "Write LOWER({left}) LIKE LOWER({right})."),
    ForeignSyntax(("~~",), "Write {left} LIKE {right}."),
    ForeignSyntax(("!", "~"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("!~",), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("!", "~*"), lambda match: f"Write NOT {_case_insensitive_regexp_hint(match)}."),
    ForeignSyntax(("!~*",), lambda match: f"Write NOT {_case_insensitive_regexp_hint(match)}."),
    ForeignSyntax(("~*",), lambda match: f"Write {_case_insensitive_regexp_hint(match)}."),
    ForeignSyntax(("=~",), "Write REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("NOT", "REGEXP"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("NOT", "RLIKE"), "Write NOT REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("SIMILAR", "TO"), "Write REGEXP_CONTAINS({left}, {right})."),
    ForeignSyntax(("==",), "Write =."),
    ForeignSyntax(("!", "=", "="), "Write != or <>."),
    ForeignSyntax(("!==",), "Write != or <>."),
    ForeignSyntax(("<=>",), "Write IS NOT DISTINCT FROM."),
    ForeignSyntax(("&&",), "Write AND."),
    ForeignSyntax(("%",), "Write MOD({left}, {right})."),
    ForeignSyntax(("->>",), _json_operator_hint),
    ForeignSyntax(("->",), _json_operator_hint),
    ForeignSyntax(("#>>",), _json_operator_hint),
    ForeignSyntax(("#>",), _json_operator_hint),
    ForeignSyntax(("@>",), "Write {right} IN UNNEST({left})."),
    ForeignSyntax(
        (")", "FILTER", "(", "WHERE"), _filtered_aggregate_hint, message="FILTER is not a clause of BigQuery."
    ),
    ForeignSyntax(
        (")", "WITHIN", "GROUP", "(", "ORDER", "BY"),
        _percentile_hint,
        message="WITHIN GROUP is not a clause of BigQuery.",
    ),
    ForeignSyntax(
        ("INTERVAL", "TEXT"), _quoted_interval_hint, message="The unit of an INTERVAL stands outside of the quotes."
    ),
    ForeignSyntax((",", "NUMBER", "UNIT", ")"), _unquoted_interval_hint, message="A time is moved by an INTERVAL."),
    *(
        ForeignSyntax(
            ("EXTRACT", "(", part, "FROM"), f"Write {written}.", message=f"{part} is not a part of a time in BigQuery."
        )
        for part, written in _TIME_PART_REPLACEMENTS.items()
    ),
    ForeignSyntax(("FETCH", "FIRST", "NUMBER"), "Write LIMIT {2} at the end.", _CLAUSE_PHRASE),
    ForeignSyntax(("FETCH", "NEXT", "NUMBER"), "Write LIMIT {2} at the end.", _CLAUSE_PHRASE),
    ForeignSyntax(("FETCH", "FIRST", "ROW"), "Write LIMIT 1 at the end.", _CLAUSE_PHRASE),
    ForeignSyntax(
        ("SELECT", "TOP", "NUMBER"),
        "Write LIMIT {2} at the end of the query.",
        message="TOP is not a clause of BigQuery.",
    ),
    ForeignSyntax(("LIMIT", "NUMBER", ",", "NUMBER"), "Write LIMIT {3} OFFSET {1}.", message="LIMIT takes one number."),
    ForeignSyntax(
        ("DISTINCT", "ON", "("),
        "Keep one row of each with QUALIFY ROW_NUMBER() OVER (PARTITION BY {inside}) = 1.",
        _CLAUSE_PHRASE,
    ),
    ForeignSyntax(("WITH", "ORDINALITY"), "Write WITH OFFSET AS position.", _CLAUSE_PHRASE),
    ForeignSyntax(("WITH", "ROLLUP"), "Write GROUP BY ROLLUP (…).", _CLAUSE_PHRASE),
    ForeignSyntax(("EXCLUDE", "("), "Write EXCEPT ({inside}).", _CLAUSE_PHRASE),
    ForeignSyntax(("MINUS", "SELECT"), "Write EXCEPT DISTINCT SELECT.", "a set operation"),
    ForeignSyntax(
        ("UNION", "SELECT"), "Write UNION ALL or UNION DISTINCT.", message="UNION says whether equal rows are kept."
    ),
    ForeignSyntax(("INTERSECT", "SELECT"), "Write INTERSECT DISTINCT.", message="INTERSECT is written with DISTINCT."),
    ForeignSyntax(("EXCEPT", "SELECT"), "Write EXCEPT DISTINCT.", message="EXCEPT is written with DISTINCT."),
    ForeignSyntax(("PREWHERE",), "Write WHERE.", _CLAUSE_PHRASE),
    ForeignSyntax(("LATERAL", "VIEW"), "Write CROSS JOIN UNNEST(…).", _CLAUSE_PHRASE),
    ForeignSyntax(("ARRAY", "JOIN"), "Write CROSS JOIN UNNEST(…).", _CLAUSE_PHRASE),
    ForeignSyntax(
        ("DISTINCT", ")"), "Write COUNT(DISTINCT value).", message="An expression is missing after DISTINCT."
    ),
    ForeignSyntax(
        ("?",), _VALUE_OR_PARAMETER_HINT, message=f'"?" is not a parameter of BigQuery. {_NAMED_PARAMETER_HINT}'
    ),
    ForeignSyntax(
        ("{", "{"), _VALUE_OR_PARAMETER_HINT, message=f"A template's variable is not read here. {_NAMED_PARAMETER_HINT}"
    ),
    ForeignSyntax(
        ("$", "{"), _VALUE_OR_PARAMETER_HINT, message=f"A template's variable is not read here. {_NAMED_PARAMETER_HINT}"
    ),
)
_SYNTAX_BY_FIRST_WORD: Final[Mapping[str, tuple[ForeignSyntax, ...]]] = {
    first: tuple(form for form in FOREIGN_SYNTAX if form.words[0] == first)
    for first in {form.words[0] for form in FOREIGN_SYNTAX}
}
# In other dialects, `:name` after one of these words is a parameter. After any other word, the colon is an operator.
_TOKENS_BEFORE_COLON_PARAMETER: Final = frozenset(
    "= < > <= >= != <> ( , + - * / AND OR LIKE IN BETWEEN LIMIT OFFSET WHERE NOT".split()
)
# Words that are infix operators in other dialects, but names or prefix operators in BigQuery. They match only between
# two operands.
_SYNTAX_BY_INFIX_OPERATOR: Final[Mapping[str, ForeignSyntax]] = {
    word: ForeignSyntax((word,), "Write REGEXP_CONTAINS({left}, {right}).") for word in ("~", "REGEXP", "RLIKE", "GLOB")
} | {"XOR": ForeignSyntax(("XOR",), "Write {left} != {right}.")}
_TYPOGRAPHIC_QUOTE_PATTERN: Final = re.compile("[\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb]")
_TYPOGRAPHIC_DASHES: Final = frozenset("\u2013\u2014\u2212")


class ForeignSyntaxFinding(msgspec.Struct, frozen=True):
    """Syntax of another dialect found in a query: its position, the error message, and the hint."""

    text_offset: int
    message: str
    hint: str


def find_foreign_syntax(source: QueryTokens) -> Iterator[ForeignSyntaxFinding]:
    """Yield all syntax of other dialects in a query: rows of the table, typographic quotes, dashes, `$1`, `:name`."""
    for index, word in enumerate(source.tokens):
        syntax = _match_syntax_at(source, index)
        if syntax is not None:
            yield _finding_of_match(syntax, ForeignSyntaxMatch(source, index, len(syntax.words)))
        else:
            yield from _find_foreign_punctuation(source, index, word)


def _match_syntax_at(source: QueryTokens, index: int) -> ForeignSyntax | None:
    word = source.tokens[index]
    if word.is_text_literal:
        return None
    infix = _SYNTAX_BY_INFIX_OPERATOR.get(word.text)
    if infix is not None and source.operand_before(index) and source.operand_after(index):
        return infix
    return next(
        (syntax for syntax in _SYNTAX_BY_FIRST_WORD.get(word.text, ()) if _matches_words(syntax, source, index)), None
    )


def _matches_words(syntax: ForeignSyntax, source: QueryTokens, index: int) -> bool:
    words = source.tokens[index : index + len(syntax.words)]
    return len(words) == len(syntax.words) and all(map(_matches_word, words, syntax.words))


def _matches_word(word: QueryToken, pattern: str) -> bool:
    if pattern == "NUMBER":
        return word.is_number
    if pattern == "TEXT":
        return word.is_text_literal and bigquery_interval(word.text) is not None
    if pattern == "UNIT":
        return word.is_name and bigquery_interval(f"1 {word.text}") is not None
    return word.text == pattern and not word.is_text_literal


def _finding_of_match(syntax: ForeignSyntax, match: ForeignSyntaxMatch) -> ForeignSyntaxFinding:
    last = match.first_word_index + match.word_count - 1
    start = match.query_tokens.tokens[match.first_word_index + (syntax.words[0] in (")", ","))].start
    message = (
        syntax.message
        or f'"{match.query_tokens.text_between(match.first_word_index, last)[:40].removesuffix("(").rstrip()}" is not {syntax.construct_phrase} of BigQuery.'
    )
    hint = (
        syntax.hint(match)
        if callable(syntax.hint)
        else _PLACEHOLDER_PATTERN.sub(lambda placeholder: _placeholder_value(match, placeholder[1]), syntax.hint)
    )
    return ForeignSyntaxFinding(start, message, hint)


def _placeholder_value(match: ForeignSyntaxMatch, name: str) -> str:
    return match.word_text(int(name)) if name.isdigit() else str(getattr(match, name))


def _find_foreign_punctuation(source: QueryTokens, index: int, word: QueryToken) -> Iterator[ForeignSyntaxFinding]:
    source_text = source.text_between(index, index)
    if word.is_text_literal:
        return
    mark = _TYPOGRAPHIC_QUOTE_PATTERN.search(source_text)
    if mark:
        message = f"The typographic quote {mark[0]} is not a quote of SQL."
        yield ForeignSyntaxFinding(word.start, message, "Write ' around a text, and nothing or ` around a name.")
    elif source_text in _TYPOGRAPHIC_DASHES:
        yield ForeignSyntaxFinding(
            word.start,
            f"The dash {source_text} is not an operator of SQL.",
            "Write - for minus, or -- before a comment.",
        )
    elif re.fullmatch(r"\$\d+", source_text):
        yield ForeignSyntaxFinding(
            word.start,
            f'"{source_text}" is not a parameter of BigQuery. {_NAMED_PARAMETER_HINT}',
            _VALUE_OR_PARAMETER_HINT,
        )
    elif source_text == ":" and index > 0 and index + 1 < len(source.tokens) and source.tokens[index + 1].is_name:
        yield _finding_of_foreign_colon(source, index)


def _finding_of_foreign_colon(source: QueryTokens, index: int) -> ForeignSyntaxFinding:
    """Explain `:name`, a parameter of other dialects, or `value:path`, a field access of other dialects."""
    name = source.operand_after(index) or "name"
    word, previous = source.tokens[index], source.tokens[index - 1]
    if previous.text in _TOKENS_BEFORE_COLON_PARAMETER:
        hint = f"Write @{name} for a parameter of the endpoint, or the value itself."
        return ForeignSyntaxFinding(
            word.start, f'":{name}" is not a parameter of BigQuery. {_NAMED_PARAMETER_HINT}', hint
        )
    value = source.operand_before(index) or "value"
    return ForeignSyntaxFinding(
        word.start, '":" is not an operator of BigQuery.', f"Write {value}.{name} for a field of an event."
    )
