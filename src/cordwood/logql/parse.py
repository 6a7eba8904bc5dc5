"""A hand-written recursive descent parser of LogQL, which reports the position of a text that it cannot parse."""

import re
from collections.abc import Mapping
from typing import Final

from cordwood.logql.lexer import Token, TokenCursor, TokenKind
from cordwood.logql.syntax import (
    REGEX_COMPARISONS,
    BinaryOperation,
    ComparisonOperator,
    Grouping,
    LabelExtraction,
    LabelFilter,
    LabelMatch,
    LabelSelection,
    LineFilter,
    LineFormat,
    MatchConjunction,
    MatchDisjunction,
    MetricQuery,
    NumberKind,
    NumberLiteral,
    NumberMatch,
    ParserKind,
    ParserStage,
    Pipeline,
    Query,
    RangeAggregate,
    Stage,
    TemplatePlaceholder,
    TextMatch,
    UnwrapStage,
    VectorAggregate,
)

# `LOG_RANGE_FUNCTIONS` are functions over the entries of a range, `UNWRAPPED_RANGE_FUNCTIONS` over the unwrapped values
# of a range. `rate` and `absent_over_time` accept both entries and values.
LOG_RANGE_FUNCTIONS: Final = frozenset({"rate", "count_over_time", "bytes_rate", "bytes_over_time", "absent_over_time"})
UNWRAPPED_RANGE_FUNCTIONS: Final = frozenset(
    f"{name}_over_time" for name in ("sum", "avg", "min", "max", "first", "last", "stddev", "stdvar", "quantile")
)
_GROUPABLE_RANGE_FUNCTIONS: Final = UNWRAPPED_RANGE_FUNCTIONS - {"sum_over_time"}
RANKING_FUNCTIONS: Final = frozenset({"topk", "bottomk"})
SORTING_FUNCTIONS: Final = frozenset({"sort", "sort_desc"})
VECTOR_FUNCTIONS: Final = (
    frozenset({"sum", "avg", "min", "max", "count", "stddev", "stdvar"}) | RANKING_FUNCTIONS | SORTING_FUNCTIONS
)
_HINT_BY_REFUSED_FUNCTION: Final[Mapping[str, str]] = {
    "rate_counter": "Send the difference, and use rate.",
    "label_replace": "Group by the label as it is.",
    "approx_topk": "Use topk.",
    "label_join": "Group by the labels as they are.",
}
_COMPARISON_OPERATORS: Final = ("==", "!=", ">", ">=", "<", "<=")
# The binary operators of each level of precedence. Operators of the first level bind most loosely.
_OPERATORS_BY_PRECEDENCE: Final = (
    ("or",),
    ("and", "unless"),
    _COMPARISON_OPERATORS,
    ("+", "-"),
    ("*", "/", "%"),
    ("^",),
)
_SET_OPERATORS: Final = frozenset({"or", "and", "unless"})
_VECTOR_MATCHING_WORDS: Final = ("on", "ignoring", "group_left", "group_right")
_MICROSECONDS_PER_SECOND: Final = 1_000_000
# The maximum length of a range or of the modifier `offset`, in seconds: 100 years.
_MAX_RANGE_SECONDS: Final = 100 * 365 * 86_400


def parse_logql(text: str) -> Query:
    """Parse a whole LogQL query; raise BadQuerySyntax or QueryUnsupported with the position of the first mistake."""
    cursor = TokenCursor(text)
    if cursor.next_token.kind is TokenKind.END:
        raise cursor.syntax_error("The query is empty.", 'Write it as in {service_name="my.app"} |= "error".')
    query = _parse_precedence_level(cursor, 0)
    cursor.expect_end()
    return query


def parse_log_query(text: str) -> Pipeline:
    """Parse a text that must be a log query.

    Requests for entries, streams, label values or counts accept no other query.
    """
    query = parse_logql(text)
    if not isinstance(query, Pipeline):
        raise TokenCursor(text).syntax_error(
            "A stream selector is expected here.", 'Write it as in {service_name="my.app"}.', 0
        )
    return query


def _parse_precedence_level(cursor: TokenCursor, level: int) -> Query:
    """Parse operands joined by operators of this precedence level or of levels that bind more tightly."""
    if level == len(_OPERATORS_BY_PRECEDENCE):
        return _parse_operand(cursor)
    left = _parse_precedence_level(cursor, level + 1)
    while (cursor.next_is_word if level < 2 else cursor.next_is_symbol)(*_OPERATORS_BY_PRECEDENCE[level]):
        operator = cursor.take_token()
        cursor.count_query_part()
        _check_set_operator(cursor, operator)
        is_bool = operator.keyword in _COMPARISON_OPERATORS and cursor.accept_word("bool")
        if cursor.next_is_word(*_VECTOR_MATCHING_WORDS):
            raise cursor.unsupported_error(
                f"{cursor.next_token.text} is not supported.", "Aggregate both sides by the same labels."
            )
        cursor.enter_nesting()
        # The power operator is right-associative.
        right = _parse_precedence_level(cursor, level if operator.keyword == "^" else level + 1)
        cursor.leave_nesting()
        left = BinaryOperation(
            operator.keyword,
            _require_metric_query(cursor, left, operator),
            _require_metric_query(cursor, right, operator),
            is_bool,
            operator.text_offset,
        )
    return left


def _check_set_operator(cursor: TokenCursor, operator: Token) -> None:
    """Raise QueryUnsupported for a set operator, except `or vector(…)`, which fills steps without a sample."""
    if operator.keyword in _SET_OPERATORS and not (operator.keyword == "or" and cursor.next_is_word("vector")):
        raise cursor.unsupported_error(
            f"{operator.text} between two vectors is not supported.", "Send two queries.", operator.text_offset
        )


def _require_metric_query(cursor: TokenCursor, query: Query, place: Token) -> MetricQuery:
    if isinstance(query, Pipeline):
        raise cursor.syntax_error(
            "A log query is not a number.", "Count its lines, as in count_over_time({…}[5m]).", place.text_offset
        )
    return query


def _parse_operand(cursor: TokenCursor) -> Query:
    token = cursor.next_token
    if cursor.next_is_symbol("{"):
        return _parse_log_query(cursor)
    if cursor.accept_symbol("("):
        cursor.enter_nesting()
        query = _parse_precedence_level(cursor, 0)
        cursor.expect_symbol(")")
        cursor.leave_nesting()
        return _parse_stages(cursor, query) if isinstance(query, Pipeline) else query
    if cursor.next_is_symbol("-", "+"):
        sign = -1 if cursor.take_token().text == "-" else 1
        number = cursor.expect_kind(TokenKind.NUMBER, "a number")
        return NumberLiteral(sign * number.numeric_value, text_offset=token.text_offset)
    if token.kind is TokenKind.NUMBER:
        return NumberLiteral(cursor.take_token().numeric_value, text_offset=token.text_offset)
    if token.kind is TokenKind.NAME:
        return _parse_call(cursor)
    raise cursor.unexpected_token_error("a stream selector such as {…}, or a function")


def _parse_log_query(cursor: TokenCursor) -> Pipeline:
    offset = cursor.next_token.text_offset
    return _parse_stages(cursor, Pipeline(_parse_selector(cursor), (), offset))


def _parse_stages(cursor: TokenCursor, pipeline: Pipeline) -> Pipeline:
    stages: list[Stage] = [*pipeline.stages]
    while _is_at_stage(cursor):
        stage = _parse_stage(cursor)
        if isinstance(stage, UnwrapStage):
            raise cursor.syntax_error(
                "unwrap is allowed only in a range.", "Write sum_over_time({…} | unwrap x [5m]).", stage.text_offset
            )
        stages.append(stage)
    return Pipeline(pipeline.matchers, tuple(stages), pipeline.text_offset)


def _parse_call(cursor: TokenCursor) -> MetricQuery:
    name = cursor.take_token()
    cursor.count_query_part()
    if name.keyword in _HINT_BY_REFUSED_FUNCTION:
        raise cursor.unsupported_error(
            f"{name.text} is not supported.", _HINT_BY_REFUSED_FUNCTION[name.keyword], name.text_offset
        )
    if name.keyword == "vector":
        return _parse_vector(cursor, name)
    cursor.enter_nesting()
    if name.keyword in LOG_RANGE_FUNCTIONS | UNWRAPPED_RANGE_FUNCTIONS:
        found: MetricQuery = _parse_range_aggregate(cursor, name)
    elif name.keyword in VECTOR_FUNCTIONS:
        found = _parse_vector_aggregate(cursor, name)
    else:
        raise cursor.syntax_error(f"There is no function called {name.text[:60]}.", None, name.text_offset)
    cursor.leave_nesting()
    return found


def _parse_vector(cursor: TokenCursor, name: Token) -> NumberLiteral:
    cursor.expect_symbol("(")
    is_negative = cursor.accept_symbol("-")
    number = cursor.expect_kind(TokenKind.NUMBER, "a number").numeric_value
    cursor.expect_symbol(")")
    return NumberLiteral(-number if is_negative else number, is_vector=True, text_offset=name.text_offset)


def _parse_vector_aggregate(cursor: TokenCursor, name: Token) -> VectorAggregate:
    grouping = _parse_grouping(cursor)
    cursor.expect_symbol("(")
    parameter = None
    if name.keyword in RANKING_FUNCTIONS:
        number = cursor.expect_kind(TokenKind.NUMBER, f"the number of {name.text}")
        if not number.text.isdecimal() or not 1 <= number.numeric_value <= 1000:
            raise cursor.syntax_error(f"{name.text} takes a number from 1 to 1000.", None, number.text_offset)
        parameter = int(number.text)
        cursor.expect_symbol(",")
    start = cursor.next_token
    operand = _require_metric_query(cursor, _parse_precedence_level(cursor, 0), start)
    cursor.expect_symbol(")")
    grouping = grouping or _parse_grouping(cursor)
    if grouping is not None and name.keyword in SORTING_FUNCTIONS:
        raise cursor.syntax_error(f"{name.text} cannot have a grouping.", None, grouping.text_offset)
    return VectorAggregate(name.keyword, operand, grouping or Grouping(), parameter, name.text_offset)


def _parse_grouping(cursor: TokenCursor) -> Grouping | None:
    if not cursor.next_is_word("by", "without"):
        return None
    word = cursor.take_token()
    cursor.expect_symbol("(")
    labels: list[str] = []
    while not cursor.next_is_symbol(")"):
        cursor.count_query_part()
        labels.append(cursor.expect_kind(TokenKind.NAME, "the name of a label").text)
        if not cursor.next_is_symbol(")"):
            cursor.expect_symbol(",")
    cursor.expect_symbol(")")
    return Grouping(tuple(dict.fromkeys(labels)), word.keyword == "without", word.text_offset)


def _parse_range_aggregate(cursor: TokenCursor, name: Token) -> RangeAggregate:
    cursor.expect_symbol("(")
    parameter = None
    if name.keyword == "quantile_over_time":
        number = cursor.expect_kind(TokenKind.NUMBER, "a quantile from 0 to 1")
        if number.numeric_value > 1:
            raise cursor.syntax_error("A quantile is a number from 0 to 1.", None, number.text_offset)
        parameter = number.numeric_value
        cursor.expect_symbol(",")
    entries = _RangeParser(cursor)
    entries.parse()
    cursor.expect_symbol(")")
    grouping = _parse_grouping(cursor)
    if grouping is not None and name.keyword not in _GROUPABLE_RANGE_FUNCTIONS:
        raise cursor.syntax_error(
            f"{name.text} cannot have a grouping.", f"Write sum by (…) ({name.text}(…)).", grouping.text_offset
        )
    if entries.unwrap_stage is None and name.keyword in UNWRAPPED_RANGE_FUNCTIONS:
        raise cursor.syntax_error(
            f"{name.text} needs a label to unwrap.", "Write | unwrap label before the range.", name.text_offset
        )
    if entries.unwrap_stage is not None and name.keyword in LOG_RANGE_FUNCTIONS - {"rate", "absent_over_time"}:
        raise cursor.syntax_error(
            f"{name.text} counts entries, and cannot have an unwrap.", None, entries.unwrap_stage.text_offset
        )
    return RangeAggregate(
        function_name=name.keyword,
        pipeline=Pipeline(entries.matchers, tuple(entries.stages), entries.text_offset),
        range_us=entries.range_us,
        offset_modifier_us=entries.offset_modifier_us,
        unwrap_stage=entries.unwrap_stage,
        quantile=parameter,
        grouping=grouping,
        text_offset=name.text_offset,
    )


class _RangeParser:
    """The parser of a range function's operand: a selector, stages and a duration in brackets.

    The duration may also come directly after the selector.
    """

    def __init__(self, cursor: TokenCursor) -> None:
        self._cursor = cursor
        self.text_offset = cursor.next_token.text_offset
        self.matchers = Pipeline(()).matchers
        self.stages: list[Stage] = []
        self.unwrap_stage: UnwrapStage | None = None
        self.range_us = 0
        self.offset_modifier_us = 0

    def parse(self) -> None:
        self._parse_selector_and_stages()
        if not self.range_us:
            raise self._cursor.unexpected_token_error("a range such as [5m]")

    def _parse_selector_and_stages(self) -> None:
        cursor = self._cursor
        if cursor.accept_symbol("("):
            cursor.enter_nesting()
            self._parse_selector_and_stages()
            cursor.expect_symbol(")")
            cursor.leave_nesting()
        else:
            self.matchers = _parse_selector(cursor)
        while _is_at_stage(cursor) or cursor.next_is_symbol("["):
            if cursor.next_is_symbol("["):
                self._parse_range()
            else:
                self._add_stage(_parse_stage(cursor))

    def _add_stage(self, stage: Stage | UnwrapStage) -> None:
        if isinstance(stage, UnwrapStage):
            if self.unwrap_stage is not None:
                raise self._cursor.syntax_error("A second unwrap stands here.", None, stage.text_offset)
            self.unwrap_stage = stage
            return
        if self.unwrap_stage is not None and not isinstance(stage, LabelFilter):
            raise self._cursor.syntax_error(
                "After unwrap only comparisons of labels may stand.", None, self.unwrap_stage.text_offset
            )
        self.stages.append(stage)

    def _parse_range(self) -> None:
        cursor = self._cursor
        if self.range_us:
            raise cursor.syntax_error("A second range stands here.")
        cursor.expect_symbol("[")
        self.range_us = self._parse_duration_us("a duration such as 5m")
        cursor.expect_symbol("]")
        if cursor.accept_word("offset"):
            is_negative = cursor.accept_symbol("-")
            shift_us = self._parse_duration_us("a duration such as 5m")
            self.offset_modifier_us = -shift_us if is_negative else shift_us

    def _parse_duration_us(self, expected: str) -> int:
        token = self._cursor.expect_kind(TokenKind.DURATION, expected)
        microseconds = round(token.numeric_value * _MICROSECONDS_PER_SECOND)
        if not 0 < microseconds <= _MAX_RANGE_SECONDS * _MICROSECONDS_PER_SECOND:
            raise self._cursor.syntax_error(f"The duration {token.text} is not possible here.", None, token.text_offset)
        return microseconds


_MATCHER_OPERATOR_BY_SYMBOL: Final[Mapping[str, ComparisonOperator]] = {
    "=": ComparisonOperator.EQUAL,
    "!=": ComparisonOperator.NOT_EQUAL,
    "=~": ComparisonOperator.REGEX,
    "!~": ComparisonOperator.NOT_REGEX,
}
_LABEL_FILTER_OPERATOR_BY_SYMBOL: Final[Mapping[str, ComparisonOperator]] = {
    **_MATCHER_OPERATOR_BY_SYMBOL,
    "==": ComparisonOperator.EQUAL,
    ">": ComparisonOperator.GREATER,
    ">=": ComparisonOperator.GREATER_OR_EQUAL,
    "<": ComparisonOperator.LESS,
    "<=": ComparisonOperator.LESS_OR_EQUAL,
}
_LINE_FILTER_OPERATORS: Final = ("|=", "!=", "|~", "!~")
_PATTERN_FILTER_OPERATORS: Final = ("|>", "!>")
_NUMBER_KIND_BY_TOKEN_KIND: Final[Mapping[TokenKind, NumberKind]] = {
    TokenKind.NUMBER: NumberKind.NUMBER,
    TokenKind.DURATION: NumberKind.DURATION,
    TokenKind.BYTES: NumberKind.BYTES,
}
_NUMBER_KIND_BY_CONVERSION: Final[Mapping[str, NumberKind]] = {
    "duration": NumberKind.DURATION,
    "duration_seconds": NumberKind.DURATION,
    "bytes": NumberKind.BYTES,
}
# Loki's stages that cordwood refuses, each with the alternative that the error suggests.
_HINT_BY_REFUSED_STAGE: Final[Mapping[str, str]] = {
    "regexp": "Filter with |~, or send events with fields.",
    "pattern": "Filter with |~, or send events with fields.",
    "unpack": "Labels of Loki's senders are stored with the event: filter by them directly.",
    "label_format": "Leave it out, and filter by the label's own name.",
    "decolorize": "Leave it out: the line is answered as it was sent.",
}
# A step of a path in a JSON line: the key of an object (`a`, `.a` or `["a"]`), or the index of an array element
# (`[0]`).
_PATH_STEP_PATTERN: Final = re.compile(r'\.?([A-Za-z_][\w-]*)|\["([^"\\\]]+)"\]|\[(\d{1,6})\]')
_MAX_PATH_STEPS: Final = 20
# The label, or `__line__`, in an action of a `line_format` template.
_TEMPLATE_LABEL_PATTERN: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|__line__")


def _parse_selector(cursor: TokenCursor) -> tuple[TextMatch, ...]:
    """Parse a stream selector, which consists of matchers in braces."""
    cursor.expect_symbol("{")
    matchers: list[TextMatch] = []
    while not cursor.next_is_symbol("}"):
        cursor.count_query_part()
        label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
        if not cursor.next_is_symbol(*_MATCHER_OPERATOR_BY_SYMBOL):
            raise cursor.unexpected_token_error("=, !=, =~ or !~")
        operator = _MATCHER_OPERATOR_BY_SYMBOL[cursor.take_token().text]
        text = cursor.expect_kind(TokenKind.TEXT, "a text in quotes")
        offset = text.text_offset if operator in REGEX_COMPARISONS else label.text_offset
        matchers.append(TextMatch(label.text, operator, text.text, offset))
        if not cursor.next_is_symbol("}"):
            cursor.expect_symbol(",")
    cursor.expect_symbol("}")
    return tuple(matchers)


def _is_at_stage(cursor: TokenCursor) -> bool:
    return cursor.next_is_symbol("|", *_LINE_FILTER_OPERATORS, *_PATTERN_FILTER_OPERATORS)


def _parse_stage(cursor: TokenCursor) -> Stage | UnwrapStage:
    """Parse one stage, which begins with `|` or with the operator of a line filter."""
    cursor.count_query_part()
    if cursor.next_is_symbol(*_PATTERN_FILTER_OPERATORS):
        raise cursor.unsupported_error("Pattern filters are not supported.", "Write a regular expression: |~ or !~.")
    if cursor.next_is_symbol(*_LINE_FILTER_OPERATORS):
        return _parse_line_filter(cursor)
    cursor.expect_symbol("|")
    word = cursor.next_token
    if word.kind is not TokenKind.NAME or _is_label_filter_operator(cursor.second_next_token):
        return LabelFilter(_parse_label_filters(cursor))
    if word.keyword in _HINT_BY_REFUSED_STAGE:
        raise cursor.unsupported_error(f"The stage {word.text} is not supported.", _HINT_BY_REFUSED_STAGE[word.keyword])
    cursor.take_token()
    match word.keyword:
        case "json" | "logfmt":
            return _parse_parser_stage(cursor, ParserKind(word.keyword), word.text_offset)
        case "line_format":
            return _parse_line_format(cursor)
        case "drop" | "keep":
            return _parse_label_selection(cursor, word)
        case "unwrap":
            return _parse_unwrap(cursor, word)
    raise cursor.syntax_error(
        f"There is no stage called {word.text[:60]}.",
        "Stages are json, logfmt, line_format, drop, keep, unwrap and comparisons of labels.",
        word.text_offset,
    )


def _is_label_filter_operator(token: Token) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text in _LABEL_FILTER_OPERATOR_BY_SYMBOL


def _parse_line_filter(cursor: TokenCursor) -> LineFilter:
    operator = cursor.take_token()
    first = _parse_line_filter_text(cursor)
    texts = [first.text]
    while cursor.accept_word("or"):
        cursor.count_query_part()
        texts.append(_parse_line_filter_text(cursor).text)
    is_regex = operator.text.endswith("~")
    offset = first.text_offset if is_regex else operator.text_offset
    return LineFilter(tuple(texts), is_regex, operator.text.startswith("!"), offset)


def _parse_line_filter_text(cursor: TokenCursor) -> Token:
    if cursor.next_is_word("ip"):
        raise _ip_filter_unsupported_error(cursor)
    return cursor.expect_kind(TokenKind.TEXT, "a text in quotes")


def _parse_parser_stage(cursor: TokenCursor, kind: ParserKind, offset: int) -> ParserStage:
    if cursor.next_is_symbol("--", "-"):
        raise cursor.unsupported_error(f"Options of {kind} are not supported.", "Leave the option out.")
    extractions: list[LabelExtraction] = []
    while cursor.next_token.kind is TokenKind.NAME:
        cursor.count_query_part()
        label = cursor.take_token()
        steps: tuple[str | int, ...] = (label.text,)
        if cursor.accept_symbol("="):
            expression = cursor.expect_kind(TokenKind.TEXT, "an expression in quotes")
            steps = _parse_path_steps(cursor, expression) if kind is ParserKind.JSON else (expression.text,)
        extractions.append(LabelExtraction(label.text, steps, label.text_offset))
        if not cursor.accept_symbol(","):
            break
    return ParserStage(kind, tuple(extractions), offset)


def _parse_path_steps(cursor: TokenCursor, expression: Token) -> tuple[str | int, ...]:
    """Return the steps of a path such as `request.headers["User-Agent"]` or `servers[0]`."""
    steps: list[str | int] = []
    position = 0
    while match := _PATH_STEP_PATTERN.match(expression.text, position):
        steps.append(int(match[3]) if match[3] else match[1] or match[2])
        position = match.end()
    if not steps or position < len(expression.text) or len(steps) > _MAX_PATH_STEPS:
        raise cursor.syntax_error(
            f"The expression {expression.text[:60]!r} cannot be read.",
            'Write it as in a.b, servers[0] or headers["User-Agent"].',
            expression.text_offset,
        )
    return tuple(steps)


def _parse_line_format(cursor: TokenCursor) -> LineFormat:
    template = cursor.expect_kind(TokenKind.TEXT, "a template in quotes")
    parts: list[str | TemplatePlaceholder] = []
    # An action of the template is written in double braces.
    text, opened, rest = template.text.partition("{{")
    while opened:
        parts += [text] if text else []
        action, closed, rest = rest.partition("}}")
        if not closed:
            raise cursor.syntax_error(
                "The template has {{ without }} after it.", "Close it, as in {{.path}}.", template.text_offset
            )
        cursor.count_query_part()
        label = _TEMPLATE_LABEL_PATTERN.fullmatch(action.strip())
        if label is None:
            raise cursor.unsupported_error(
                f"{{{{{action[:60]}}}}} is not supported in a template.",
                "Labels are, as in {{.path}}, and the line: {{__line__}}.",
                template.text_offset,
            )
        parts.append(TemplatePlaceholder(label[1]))
        text, opened, rest = rest.partition("{{")
    parts += [text] if text else []
    return LineFormat(tuple(parts), template.text_offset)


def _parse_label_selection(cursor: TokenCursor, word: Token) -> LabelSelection:
    labels = [_parse_selected_label(cursor, word)]
    while cursor.accept_symbol(","):
        labels.append(_parse_selected_label(cursor, word))
    return LabelSelection(tuple(labels), word.keyword == "keep", word.text_offset)


def _parse_selected_label(cursor: TokenCursor, word: Token) -> str:
    cursor.count_query_part()
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if _is_label_filter_operator(cursor.next_token):
        raise cursor.unsupported_error(f"{word.text} with a condition is not supported.", "Name the label alone.")
    return label.text


def _parse_unwrap(cursor: TokenCursor, word: Token) -> UnwrapStage:
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if not cursor.next_is_symbol("("):
        return UnwrapStage(label.text, NumberKind.NUMBER, label.text_offset)
    measure = _NUMBER_KIND_BY_CONVERSION.get(label.keyword)
    if measure is None:
        names = ", ".join(_NUMBER_KIND_BY_CONVERSION)
        raise cursor.syntax_error(
            f"unwrap has no conversion {label.text[:60]}.", f"There are: {names}.", label.text_offset
        )
    cursor.expect_symbol("(")
    converted = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    cursor.expect_symbol(")")
    return UnwrapStage(converted.text, measure, word.text_offset)


def _parse_label_filters(cursor: TokenCursor) -> LabelMatch:
    """Parse label filters joined by `and`, `or`, a comma or a blank.

    All four have the same precedence, and are applied from left to right.
    """
    found = _parse_label_filter(cursor)
    while True:
        if _accept_connective(cursor, "or"):
            found = MatchDisjunction(found, _parse_label_filter(cursor))
        elif _accept_connective(cursor, "and") or cursor.accept_symbol(",") or _is_at_label_filter(cursor):
            found = MatchConjunction(found, _parse_label_filter(cursor))
        else:
            return found


def _accept_connective(cursor: TokenCursor, word: str) -> bool:
    """Skip the keyword `word`, unless it is the name of a label that a filter compares."""
    return not _is_label_filter_operator(cursor.second_next_token) and cursor.accept_word(word)


def _is_at_label_filter(cursor: TokenCursor) -> bool:
    return cursor.next_is_symbol("(") or (
        cursor.next_token.kind is TokenKind.NAME and _is_label_filter_operator(cursor.second_next_token)
    )


def _parse_label_filter(cursor: TokenCursor) -> LabelMatch:
    cursor.count_query_part()
    if cursor.accept_symbol("("):
        cursor.enter_nesting()
        found = _parse_label_filters(cursor)
        cursor.expect_symbol(")")
        cursor.leave_nesting()
        return found
    label = cursor.expect_kind(TokenKind.NAME, "the name of a label")
    if not _is_label_filter_operator(cursor.next_token):
        raise cursor.unexpected_token_error("a comparison such as = or >")
    operator = _LABEL_FILTER_OPERATOR_BY_SYMBOL[cursor.take_token().text]
    return _parse_comparison(cursor, label, operator)


def _parse_comparison(cursor: TokenCursor, label: Token, operator: ComparisonOperator) -> TextMatch | NumberMatch:
    if cursor.next_is_word("ip"):
        raise _ip_filter_unsupported_error(cursor)
    is_negative = cursor.accept_symbol("-")
    value = cursor.take_token()
    if value.kind is TokenKind.TEXT and not is_negative and operator in _MATCHER_OPERATOR_BY_SYMBOL.values():
        offset = value.text_offset if operator in REGEX_COMPARISONS else label.text_offset
        return TextMatch(label.text, operator, value.text, offset)
    measure = _NUMBER_KIND_BY_TOKEN_KIND.get(value.kind)
    if measure is None or operator in REGEX_COMPARISONS:
        expected = (
            "a text in quotes" if operator in REGEX_COMPARISONS else "a number, a duration, a size or a text in quotes"
        )
        hint = "Texts are compared with =, !=, =~ and !~." if value.kind is TokenKind.TEXT else None
        raise cursor.syntax_error(f"{expected[0].upper()}{expected[1:]} is expected here.", hint, value.text_offset)
    return NumberMatch(
        label.text, operator, -value.numeric_value if is_negative else value.numeric_value, measure, label.text_offset
    )


def _ip_filter_unsupported_error(cursor: TokenCursor) -> Exception:
    return cursor.unsupported_error(
        "Filters by ranges of IP addresses are not supported.", "Write a regular expression."
    )
