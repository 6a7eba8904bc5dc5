"""Translation of selectors, line filters and label filters to SQL conditions on one sub-query's events."""

import re
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.labels import EventLabels, LabelValue, ParserState, as_number
from cordwood.logql.syntax import (
    NEGATED_COMPARISONS,
    REGEX_COMPARISONS,
    BothMatch,
    Comparison,
    EitherMatch,
    LabelFilter,
    LabelMatch,
    LabelRemoval,
    LineFilter,
    LineFormat,
    NumberMatch,
    Parser,
    Pipeline,
    Stage,
    TextMatch,
)
from cordwood.sql.query_templates import all_of, any_of, fill, number

# Loki's labels that mark an entry which a parser could not read.
ERROR_LABELS: Final = frozenset({"__error__", "__error_details__"})

_NUMBER_TEMPLATES: Final = {
    Comparison.EQUAL: "@value = @number",
    Comparison.NOT_EQUAL: "@value != @number",
    Comparison.GREATER: "@value > @number",
    Comparison.GREATER_OR_EQUAL: "@value >= @number",
    Comparison.LESS: "@value < @number",
    Comparison.LESS_OR_EQUAL: "@value <= @number",
}
# Patterns that can be matched without the engine in linear time: letters, any character (.), and repetitions at the
# ends alone.
_SIMPLE_PATTERN: Final = re.compile(r"(?:\.[*+])?(?:[\w \-/:@.]|\\[.\-/])*(?:\.[*+])?")
_MAX_SIMPLE_LENGTH: Final = 300
_ANY_TEXT_PATTERN: Final = ".*"
_NON_EMPTY_PATTERN: Final = ".+"

Condition = exp.Expr | bool


class Conditions(msgspec.Struct):
    """The translation of a pipeline on one sub-query's events, stage by stage.

    `given` are the labels whose equality the request's parameters already ensure.
    """

    labels: EventLabels
    given: frozenset[str] = frozenset()
    state: ParserState = msgspec.field(default_factory=ParserState)

    def of_pipeline(self, pipeline: Pipeline) -> list[exp.Expr] | None:
        """Return the conditions of a pipeline, to be joined with AND; None if no event of the sub-query meets them."""
        conditions: list[Condition] = [self._matcher_condition(matcher) for matcher in pipeline.matchers]
        if False in conditions:
            return None
        conditions += [self._apply_stage(stage) for stage in pipeline.stages]
        return None if False in conditions else [one for one in conditions if not isinstance(one, bool)]

    def _matcher_condition(self, matcher: TextMatch) -> Condition:
        if matcher.label in self.given and matcher.operator is Comparison.EQUAL:
            return True
        return self._compare_text(matcher, self.labels.label(matcher.label, ParserState(), matcher.offset))

    def _apply_stage(self, stage: Stage) -> Condition:
        if self.state.formats and isinstance(stage, LineFilter | Parser):
            raise QueryUnsupported(
                "A line that line_format has made can be neither searched nor parsed.",
                hint="Put this stage before line_format.",
                span=self.labels.info.span(stage.offset),
            )
        match stage:
            case LineFilter():
                return self._line_condition(stage)
            case LabelFilter(match):
                return self._match_condition(match)
            case Parser():
                self.state = msgspec.structs.replace(self.state, parsers=(*self.state.parsers, stage))
            case LineFormat():
                self.state = msgspec.structs.replace(self.state, formats=(*self.state.formats, stage))
            case LabelRemoval():
                self.state = msgspec.structs.replace(self.state, removals=(*self.state.removals, stage))
        return True

    def _line_condition(self, stage: LineFilter) -> Condition:
        line = self.labels.message()
        if "" in stage.texts:
            return not stage.is_negated
        if stage.is_regex:
            found = [_regexp_contains(line, f"(?s){pattern}", stage.offset) for pattern in stage.texts]
        else:
            found = [fill("STRPOS(@line, @text) > 0", stage.offset, line=line, text=text) for text in stage.texts]
        condition = any_of(found)
        return (
            fill("(@condition) IS NOT TRUE", stage.offset, condition=condition.unnest())
            if stage.is_negated
            else condition
        )

    def _match_condition(self, match: LabelMatch) -> Condition:
        match match:
            case BothMatch(left, right):
                return _conjunction(self._match_condition(left), self._match_condition(right))
            case EitherMatch(left, right):
                return _disjunction(self._match_condition(left), self._match_condition(right))
            case TextMatch(label) if label in ERROR_LABELS:
                return self._keeps_errorless_entries(match)
            case TextMatch():
                return self._compare_text(match, self.labels.label(match.label, self.state, match.offset))
            case NumberMatch():
                return self._compare_number(match)

    def _keeps_errorless_entries(self, match: TextMatch) -> Condition:
        """Return whether the filter keeps entries without errors; here no entry ever has an error label."""
        if match.text == "" and match.operator is Comparison.EQUAL:
            return True
        raise QueryUnsupported(
            f"{match.label} is never set: an entry that a stage cannot read has no labels of it.",
            hint=f'Only {match.label}="" can be asked.',
            span=self.labels.info.span(match.offset),
        )

    def _compare_text(self, match: TextMatch, value: LabelValue | None) -> Condition:
        is_negated = match.operator in NEGATED_COMPARISONS
        if match.operator in REGEX_COMPARISONS:
            found = _matches_pattern(value, match.text, match.offset)
        else:
            found = _equality(value, match.text, match.offset)
        if isinstance(found, bool):
            return found != is_negated
        return fill("(@condition) IS NOT TRUE", match.offset, condition=found.unnest()) if is_negated else found

    def _compare_number(self, match: NumberMatch) -> Condition:
        value = self.labels.label(match.label, self.state, match.offset)
        if value is None:
            return False
        converted = as_number(value.text, match.measure, match.offset)
        compared = number(f"{match.number!r}", match.offset)
        return fill(_NUMBER_TEMPLATES[match.operator], match.offset, value=converted, number=compared)


def may_equal(matcher: TextMatch, text: str) -> bool:
    """Return whether a matcher may accept a text; False only if this is certain without the engine."""
    if matcher.operator not in REGEX_COMPARISONS:
        return (matcher.text == text) != (matcher.operator in NEGATED_COMPARISONS)
    known = _simple_match(matcher.text, text)
    return known is None or known != (matcher.operator in NEGATED_COMPARISONS)


def _equality(value: LabelValue | None, text: str, offset: int) -> Condition:
    """Return whether a label has this value; a missing label equals the empty text."""
    if value is None or value.constant is not None:
        return (value.constant if value else "") == text
    if text == "":
        return fill("IFNULL(@value, '') = ''", offset, value=value.text)
    return fill("@value = @text", offset, value=value.text, text=text)


def _matches_pattern(value: LabelValue | None, pattern: str, offset: int) -> Condition:
    """Return whether the whole value matches a regular expression; a missing label is the empty text."""
    if pattern == _ANY_TEXT_PATTERN:
        return True
    if value is not None and value.constant is None:
        if pattern == _NON_EMPTY_PATTERN:
            return fill("IFNULL(@value, '') != ''", offset, value=value.text)
        return _regexp_contains(fill("IFNULL(@value, '')", offset, value=value.text), f"^(?:{pattern})$", offset)
    constant = (value.constant if value else None) or ""
    known = _simple_match(pattern, constant)
    if known is not None:
        return known
    return _regexp_contains(fill("@text", offset, text=constant), f"^(?:{pattern})$", offset)


def _simple_match(pattern: str, text: str) -> bool | None:
    """Return whether a simple pattern matches the whole text; None for a pattern that only the engine can match."""
    alternatives = pattern.split("|")
    if len(pattern) > _MAX_SIMPLE_LENGTH or len(text) > _MAX_SIMPLE_LENGTH:
        return None
    if not all(_SIMPLE_PATTERN.fullmatch(alternative) for alternative in alternatives):
        return None
    return any(re.fullmatch(alternative, text) for alternative in alternatives)


def _regexp_contains(text: exp.Expr, pattern: str, offset: int) -> exp.Expr:
    return fill("REGEXP_CONTAINS(@text, @pattern)", offset, text=text, pattern=pattern)


def _conjunction(left: Condition, right: Condition) -> Condition:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return fill("(@both)", 0, both=all_of([left, right]))


def _disjunction(left: Condition, right: Condition) -> Condition:
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return any_of([left, right])
