"""The parser of log queries: a stream selector, and the stages after it."""

import re
from collections.abc import Mapping
from typing import Final

from cordwood.logql.lexer import Cursor, Token, TokenKind
from cordwood.logql.syntax import (
    REGEX_COMPARISONS,
    BothMatch,
    Comparison,
    EitherMatch,
    Extraction,
    LabelFilter,
    LabelMatch,
    LabelRemoval,
    LineFilter,
    LineFormat,
    Measure,
    NumberMatch,
    Parser,
    ParserKind,
    Stage,
    TemplateLabel,
    TextMatch,
    Unwrap,
)

_MATCHER_OPERATORS: Final[Mapping[str, Comparison]] = {
    "=": Comparison.EQUAL,
    "!=": Comparison.NOT_EQUAL,
    "=~": Comparison.REGEX,
    "!~": Comparison.NOT_REGEX,
}
_FILTER_OPERATORS: Final[Mapping[str, Comparison]] = {
    **_MATCHER_OPERATORS,
    "==": Comparison.EQUAL,
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_OR_EQUAL,
    "<": Comparison.LESS,
    "<=": Comparison.LESS_OR_EQUAL,
}
_LINE_OPERATORS: Final = ("|=", "!=", "|~", "!~")
_PATTERN_OPERATORS: Final = ("|>", "!>")
_MEASURE_BY_TOKEN: Final[Mapping[TokenKind, Measure]] = {
    TokenKind.NUMBER: Measure.NUMBER,
    TokenKind.DURATION: Measure.DURATION,
    TokenKind.BYTES: Measure.BYTES,
}
_MEASURE_BY_CONVERSION: Final[Mapping[str, Measure]] = {
    "duration": Measure.DURATION,
    "duration_seconds": Measure.DURATION,
    "bytes": Measure.BYTES,
}
# Stages of Loki that are refused, each with an alternative.
_REFUSED_STAGES: Final[Mapping[str, str]] = {
    "regexp": "Filter with |~, or send events with fields.",
    "pattern": "Filter with |~, or send events with fields.",
    "unpack": "Labels of Loki's senders are stored with the event: filter by them directly.",
    "label_format": "Leave it out, and filter by the label's own name.",
    "decolorize": "Leave it out: the line is answered as it was sent.",
}
# A key of an object, or an index of an array: `a`, `.a`, `["a"]`, `[0]`.
_STEP_PATTERN: Final = re.compile(r'\.?([A-Za-z_][\w-]*)|\["([^"\\\]]+)"\]|\[(\d{1,6})\]')
_MAX_STEPS: Final = 20
# The action between the braces of a template, and the label in it.
_TEMPLATE_ACTION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_TEMPLATE_LABEL: Final = re.compile(r"\s*(?:\.([A-Za-z_][A-Za-z0-9_]*)|__line__)\s*")


def parse_selector(cursor: Cursor) -> tuple[TextMatch, ...]:
    """Parse the matchers in braces."""
    cursor.expect("{")
    matchers: list[TextMatch] = []
    while not cursor.is_symbol("}"):
        cursor.count_part()
        label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
        if not cursor.is_symbol(*_MATCHER_OPERATORS):
            raise cursor.unexpected("=, !=, =~ or !~")
        operator = _MATCHER_OPERATORS[cursor.take().text]
        text = cursor.expect_kind(TokenKind.TEXT, "a text in quotes")
        offset = text.offset if operator in REGEX_COMPARISONS else label.offset
        matchers.append(TextMatch(label.text, operator, text.text, offset))
        if not cursor.is_symbol("}"):
            cursor.expect(",")
    cursor.expect("}")
    return tuple(matchers)


def is_at_stage(cursor: Cursor) -> bool:
    return cursor.is_symbol("|", *_LINE_OPERATORS, *_PATTERN_OPERATORS)


def parse_stage(cursor: Cursor) -> Stage | Unwrap:
    """Parse one stage, beginning with its bar."""
    cursor.count_part()
    if cursor.is_symbol(*_PATTERN_OPERATORS):
        raise cursor.unsupported("Pattern filters are not supported.", "Write a regular expression: |~ or !~.")
    if cursor.is_symbol(*_LINE_OPERATORS):
        return _parse_line_filter(cursor)
    cursor.expect("|")
    word = cursor.next
    if word.kind is not TokenKind.NAME or _is_operator(cursor.following):
        return LabelFilter(_parse_matches(cursor))
    if word.text in _REFUSED_STAGES:
        raise cursor.unsupported(f"The stage {word.text} is not supported.", _REFUSED_STAGES[word.text])
    cursor.take()
    match word.text:
        case "json" | "logfmt":
            return _parse_parser(cursor, ParserKind(word.text), word.offset)
        case "line_format":
            return _parse_line_format(cursor)
        case "drop" | "keep":
            return _parse_removal(cursor, word)
        case "unwrap":
            return _parse_unwrap(cursor, word)
    raise cursor.fault(
        f"There is no stage called {word.text[:60]}.",
        "Stages are json, logfmt, line_format, drop, keep, unwrap and comparisons of labels.",
        word.offset,
    )


def _is_operator(token: Token) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text in _FILTER_OPERATORS


def _parse_line_filter(cursor: Cursor) -> LineFilter:
    operator = cursor.take()
    first = _parse_line_text(cursor)
    texts = [first.text]
    while cursor.accept_word("or"):
        cursor.count_part()
        texts.append(_parse_line_text(cursor).text)
    is_regex = operator.text.endswith("~")
    offset = first.offset if is_regex else operator.offset
    return LineFilter(tuple(texts), is_regex, operator.text.startswith("!"), offset)


def _parse_line_text(cursor: Cursor) -> Token:
    if cursor.is_word("ip"):
        raise _refuse_address_filter(cursor)
    return cursor.expect_kind(TokenKind.TEXT, "a text in quotes")


def _parse_parser(cursor: Cursor, kind: ParserKind, offset: int) -> Parser:
    if cursor.is_symbol("--", "-"):
        raise cursor.unsupported(f"Options of {kind} are not supported.", "Leave the option out.")
    extractions: list[Extraction] = []
    while cursor.next.kind is TokenKind.NAME:
        cursor.count_part()
        label = cursor.take()
        steps: tuple[str | int, ...] = (label.text,)
        if cursor.accept("="):
            expression = cursor.expect_kind(TokenKind.TEXT, "an expression in quotes")
            steps = _parse_steps(cursor, expression) if kind is ParserKind.JSON else (expression.text,)
        extractions.append(Extraction(label.text, steps, label.offset))
        if not cursor.accept(","):
            break
    return Parser(kind, tuple(extractions), offset)


def _parse_steps(cursor: Cursor, expression: Token) -> tuple[str | int, ...]:
    """Return the steps of an expression such as `request.headers["User-Agent"]` or `servers[0]`."""
    steps: list[str | int] = []
    position = 0
    while match := _STEP_PATTERN.match(expression.text, position):
        steps.append(int(match[3]) if match[3] else match[1] or match[2])
        position = match.end()
    if not steps or position < len(expression.text) or len(steps) > _MAX_STEPS:
        raise cursor.fault(
            f"The expression {expression.text[:60]!r} cannot be read.",
            'Write it as in a.b, servers[0] or headers["User-Agent"].',
            expression.offset,
        )
    return tuple(steps)


def _parse_line_format(cursor: Cursor) -> LineFormat:
    template = cursor.expect_kind(TokenKind.TEXT, "a template in quotes")
    parts: list[str | TemplateLabel] = []
    for number, text in enumerate(_TEMPLATE_ACTION.split(template.text)):
        if number % 2 == 0:
            parts += [text] if text else []
            continue
        cursor.count_part()
        label = _TEMPLATE_LABEL.fullmatch(text)
        if label is None:
            raise cursor.unsupported(
                f"{{{{{text[:60]}}}}} is not supported in a template.",
                "Labels are, as in {{.path}}, and the line: {{__line__}}.",
                template.offset,
            )
        parts.append(TemplateLabel(label[1]))
    return LineFormat(tuple(parts), template.offset)


def _parse_removal(cursor: Cursor, word: Token) -> LabelRemoval:
    labels = [_parse_removed(cursor, word)]
    while cursor.accept(","):
        labels.append(_parse_removed(cursor, word))
    return LabelRemoval(tuple(labels), word.text == "keep", word.offset)


def _parse_removed(cursor: Cursor, word: Token) -> str:
    cursor.count_part()
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if _is_operator(cursor.next):
        raise cursor.unsupported(f"{word.text} with a condition is not supported.", "Name the label alone.")
    return label.text


def _parse_unwrap(cursor: Cursor, word: Token) -> Unwrap:
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if not cursor.is_symbol("("):
        return Unwrap(label.text, Measure.NUMBER, label.offset)
    measure = _MEASURE_BY_CONVERSION.get(label.text)
    if measure is None:
        names = ", ".join(_MEASURE_BY_CONVERSION)
        raise cursor.fault(f"unwrap has no conversion {label.text[:60]}.", f"There are: {names}.", label.offset)
    cursor.expect("(")
    converted = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    cursor.expect(")")
    return Unwrap(converted.text, measure, word.offset)


def _parse_matches(cursor: Cursor) -> LabelMatch:
    """Parse label filters joined by `and`, `or`, a comma or nothing, all of one precedence, from left to right."""
    found = _parse_match(cursor)
    while True:
        if cursor.accept_word("or"):
            found = EitherMatch(found, _parse_match(cursor))
        elif cursor.accept_word("and") or cursor.accept(",") or _is_at_match(cursor):
            found = BothMatch(found, _parse_match(cursor))
        else:
            return found


def _is_at_match(cursor: Cursor) -> bool:
    return cursor.is_symbol("(") or (cursor.next.kind is TokenKind.NAME and _is_operator(cursor.following))


def _parse_match(cursor: Cursor) -> LabelMatch:
    cursor.count_part()
    if cursor.accept("("):
        cursor.descend()
        found = _parse_matches(cursor)
        cursor.expect(")")
        cursor.ascend()
        return found
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if not _is_operator(cursor.next):
        raise cursor.unexpected("a comparison such as = or >")
    operator = _FILTER_OPERATORS[cursor.take().text]
    return _parse_compared(cursor, label, operator)


def _parse_compared(cursor: Cursor, label: Token, operator: Comparison) -> TextMatch | NumberMatch:
    if cursor.is_word("ip"):
        raise _refuse_address_filter(cursor)
    is_negative = cursor.accept("-")
    value = cursor.take()
    if value.kind is TokenKind.TEXT and not is_negative and operator in _MATCHER_OPERATORS.values():
        offset = value.offset if operator in REGEX_COMPARISONS else label.offset
        return TextMatch(label.text, operator, value.text, offset)
    measure = _MEASURE_BY_TOKEN.get(value.kind)
    if measure is None or operator in REGEX_COMPARISONS:
        expected = (
            "a text in quotes" if operator in REGEX_COMPARISONS else "a number, a duration, a size or a text in quotes"
        )
        hint = "Texts are compared with =, !=, =~ and !~." if value.kind is TokenKind.TEXT else None
        raise cursor.fault(f"{expected[0].upper()}{expected[1:]} is expected here.", hint, value.offset)
    return NumberMatch(label.text, operator, -value.number if is_negative else value.number, measure, label.offset)


def _refuse_address_filter(cursor: Cursor) -> Exception:
    return cursor.unsupported("Filters by ranges of IP addresses are not supported.", "Write a regular expression.")
