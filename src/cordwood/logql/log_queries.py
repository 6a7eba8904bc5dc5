"""Translation of LogQL's log queries, and of other queries of Loki's API, to SELECTs.

A log query returns the entries that its pipeline matches. Each sub-query that may have such entries is read by a
separate SELECT. The other queries return the values of a label, the label sets of streams, or numbers of streams,
entries and bytes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.labels import (
    METADATA_COLUMN,
    SOURCE_NAME_LABEL,
    EventLabels,
    LabelValue,
    PipelineState,
    as_number,
    choose_label_names,
    label_column_name,
    label_reference,
    null_text,
    source_name_of,
)
from cordwood.logql.regex_analysis import may_match_empty_text
from cordwood.logql.syntax import (
    NEGATED_COMPARISONS,
    REGEX_COMPARISONS,
    ComparisonOperator,
    LabelFilter,
    LabelMatch,
    LineFilter,
    LogqlRequest,
    MatchConjunction,
    MatchDisjunction,
    NumberMatch,
    ParserStage,
    Pipeline,
    Stage,
    TextMatch,
)
from cordwood.lql.columns import SubQueryInfo
from cordwood.sql.nodes import internal_call
from cordwood.sql.query_templates import (
    alias_node,
    column_node,
    fill_query_template,
    join_with_and,
    join_with_or,
    number_literal,
    sort_key,
    table_node,
    text_literal,
)


class TimeRange(msgspec.Struct, frozen=True):
    """A range of time in microseconds since 1970: `start_us` is inclusive, `end_us` exclusive."""

    start_us: int
    end_us: int


# The maximum number of sub-queries that one selector may match. Each of them is compiled and scanned separately.
MAX_SUB_QUERIES_PER_SELECTOR: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_TIME: Final = datetime.max.replace(tzinfo=UTC)


class SourceBranch(msgspec.Struct, frozen=True):
    """The part of a log query that reads one sub-query: the labels, the conditions, and the state after all stages."""

    labels: EventLabels
    conditions: list[exp.Expr]
    pipeline_state: PipelineState

    def build_select(self, columns: Sequence[exp.Expr], window: TimeRange) -> exp.Select:
        """Return a SELECT of `columns` from the sub-query's entries that are in the window and meet the conditions."""
        info = self.labels.sub_query_info
        tree = exp.Select(expressions=[*columns]).from_(table_node(info.sub_query), copy=False)
        time = self.labels.timestamp_value()
        within = [
            fill_query_template("@time >= CAST(@low AS TIMESTAMP)", 0, time=time, low=_timestamp_text(window.start_us)),
            fill_query_template("@time < CAST(@high AS TIMESTAMP)", 0, time=time, high=_timestamp_text(window.end_us)),
        ]
        return tree.where(*within, *self.conditions, copy=False)


class ReadableSubQueries(msgspec.Struct, frozen=True):
    """The sub-queries that a query can read, with their metadata.

    The request's parameters already ensure that the labels `labels_matched_by_parameters` have the requested values, so
    that matchers of these labels need no condition.
    """

    sub_query_infos: Sequence[SubQueryInfo]
    labels_matched_by_parameters: frozenset[str] = frozenset()

    def branches_for_pipeline(self, pipeline: Pipeline) -> list[SourceBranch]:
        """Return a branch for each sub-query that may have entries which the pipeline matches.

        If there is no such sub-query, return one branch whose SELECT returns no rows.
        """
        found: list[SourceBranch] = []
        for info in self.sub_query_infos:
            translation = PipelineTranslator(EventLabels(info), self.labels_matched_by_parameters)
            conditions = translation.translate_pipeline(pipeline)
            if conditions is not None:
                found.append(SourceBranch(translation.labels, conditions, translation.pipeline_state))
        if len(found) > MAX_SUB_QUERIES_PER_SELECTOR:
            raise QueryUnsupported(
                f"The selector matches {len(found)} sources; at most {MAX_SUB_QUERIES_PER_SELECTOR} can be read at once.",
                hint='Select some of them, as in {source_name=~"app.+"}.',
                span=found[0].labels.sub_query_info.query_text_span(pipeline.text_offset),
            )
        return found or [self._empty_branch()]

    def _empty_branch(self) -> SourceBranch:
        return SourceBranch(EventLabels(self.sub_query_infos[0]), [fill_query_template("FALSE")], PipelineState())


def may_match_source(sub_query: str, pipelines: Iterable[Pipeline]) -> bool:
    """Return whether the selector of any of the log queries can match a sub-query, judged only by the sub-query's name.

    Sub-queries whose names cannot match are not read, and their metadata need not be collected.
    """
    return any(
        all(
            _matcher_may_accept(matcher, source_name_of(sub_query))
            for matcher in pipeline.matchers
            if matcher.label == SOURCE_NAME_LABEL
        )
        for pipeline in pipelines
    )


def select_entries(
    branches: Iterable[SourceBranch], columns: Callable[[SourceBranch], Sequence[exp.Expr]], window: TimeRange
) -> exp.Select:
    """Return a SELECT of `columns` from the entries of all branches, within the window."""
    return union_all([branch.build_select(columns(branch), window) for branch in branches])


def union_all(selects: Sequence[exp.Select]) -> exp.Select:
    """Combine SELECTs of the same columns by UNION ALL."""
    if len(selects) == 1:
        return selects[0]
    return select_from_relation([exp.Star()], _union_tree(selects), "entries")


def _union_tree(selects: Sequence[exp.Select]) -> exp.Expr:
    parts: list[exp.Expr] = [select.subquery(copy=False) for select in selects]
    return reduce(_build_union_all, parts)


def _build_union_all(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Union(this=left, expression=right, distinct=False)


def select_from_relation(columns: Sequence[exp.Expr], relation: exp.Expr, name: str) -> exp.Select:
    """Return a SELECT of `columns` from the derived table `relation`.

    The alias of the derived table gets a prefix, so that it cannot hide a sub-query of the same name.
    """
    derived = exp.Subquery(this=relation, alias=exp.TableAlias(this=exp.to_identifier(f"logql_{name}")))
    return exp.Select(expressions=[*columns]).from_(derived, copy=False)


def _log_entry_columns(branch: SourceBranch) -> list[exp.Expr]:
    """Return the columns that are read for each entry of an answer: source name, time, message and metadata."""
    labels = branch.labels
    has_metadata = labels.sub_query_info.has_column(METADATA_COLUMN)
    return [
        alias_node(fill_query_template("@name", 0, name=labels.source_name), "source_name"),
        alias_node(labels.timestamp_value(), "timestamp"),
        alias_node(labels.message_column(), "event_message"),
        column_node((METADATA_COLUMN,)) if has_metadata else alias_node(null_text(), METADATA_COLUMN),
    ]


def _timestamp_text(us: int) -> str:
    """Format a time as a BigQuery timestamp; move a time outside of the years 1 to 9999 to the nearest limit."""
    try:
        time = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        time = _LATEST_TIME if us > 0 else datetime(1, 1, 1, tzinfo=UTC)
    return time.isoformat(" ")


_TIME_COLUMN: Final = "timestamp"
_ColumnsOfBranch = Callable[[SourceBranch], Sequence[exp.Expr]]


def select_log_lines(pipeline: Pipeline, sources: ReadableSubQueries, request: LogqlRequest) -> exp.Select:
    """Return a SELECT of the entries of a log query, newest or oldest first as requested."""
    window = _request_window(request)
    selects = []
    for branch in sources.branches_for_pipeline(pipeline):
        select = branch.build_select(_log_entry_columns(branch), window)
        selects.append(_order_and_limit(select, request))
    if len(selects) == 1:
        return selects[0]
    return _order_and_limit(select_from_relation([exp.Star()], _union_tree(selects), "entries"), request)


def select_label_values(
    pipelines: Sequence[Pipeline], sources: ReadableSubQueries, request: LogqlRequest
) -> exp.Select:
    """Return a SELECT of the distinct values of the requested label."""

    def label_value_columns(branch: SourceBranch) -> list[exp.Expr]:
        found = branch.labels.label_value(request.requested_label, branch.pipeline_state, 0)
        return [alias_node(text_literal("") if found is None else found.text_expression, "value")]

    entries = _select_from_all_pipelines(pipelines, sources, label_value_columns, request)
    tree = select_from_relation([column_node(("value",))], entries, "values").where(
        fill_query_template("IFNULL(value, '') != ''"), copy=False
    )
    tree.group_by(column_node(("value",)), copy=False)
    tree.order_by(sort_key(column_node(("value",)), is_descending=False), copy=False)
    return tree.limit(number_literal(str(request.limit)), copy=False)


def select_streams(pipelines: Sequence[Pipeline], sources: ReadableSubQueries, request: LogqlRequest) -> exp.Select:
    """Return a SELECT of the distinct combinations of labels that streams in Loki's sense have."""
    labels = _stream_labels(pipelines, sources)
    entries = _select_from_all_pipelines(
        pipelines, sources, lambda branch: _stream_label_columns(branch, labels), request
    )
    tree = select_from_relation([label_reference(name) for name in labels], entries, "streams")
    tree.group_by(*[label_reference(name) for name in labels], copy=False)
    return tree.limit(number_literal(str(request.limit)), copy=False)


def select_stream_and_entry_counts(
    pipelines: Sequence[Pipeline], sources: ReadableSubQueries, request: LogqlRequest
) -> exp.Select:
    """Return a SELECT of three totals: the number of streams, the number of entries, and the bytes of all lines."""
    labels = _stream_labels(pipelines, sources)

    def stream_and_size_columns(branch: SourceBranch) -> list[exp.Expr]:
        size = fill_query_template("IFNULL(BYTE_LENGTH(@line), 0)", 0, line=branch.labels.message_column())
        return [*_stream_label_columns(branch, labels), alias_node(size, "bytes")]

    grouped = [label_reference(name) for name in labels]
    entries = _select_from_all_pipelines(pipelines, sources, stream_and_size_columns, request)
    counted = [
        alias_node(fill_query_template("COUNT(*)"), "entries"),
        alias_node(fill_query_template("SUM(bytes)"), "bytes"),
    ]
    streams = select_from_relation([*grouped, *counted], entries, "entries")
    streams.group_by(*[label_reference(name) for name in labels], copy=False)
    totals = [("COUNT(*)", "streams"), ("IFNULL(SUM(entries), 0)", "entries"), ("IFNULL(SUM(bytes), 0)", "bytes")]
    return select_from_relation(
        [alias_node(fill_query_template(template), name) for template, name in totals], streams, "streams"
    )


def _stream_labels(pipelines: Sequence[Pipeline], sources: ReadableSubQueries) -> list[str]:
    branches = [branch for pipeline in pipelines for branch in sources.branches_for_pipeline(pipeline)]
    return choose_label_names(name for branch in branches for name in branch.labels.stream_label_names())


def _stream_label_columns(branch: SourceBranch, labels: Sequence[str]) -> list[exp.Expr]:
    values = [branch.labels.stream_label_value(name) for name in labels]
    texts = [
        text_literal("") if value is None else fill_query_template("IFNULL(@value, '')", 0, value=value.text_expression)
        for value in values
    ]
    return [alias_node(text, label_column_name(name)) for name, text in zip(labels, texts, strict=True)]


def _select_from_all_pipelines(
    pipelines: Sequence[Pipeline], sources: ReadableSubQueries, columns: _ColumnsOfBranch, request: LogqlRequest
) -> exp.Select:
    branches = [branch for pipeline in pipelines for branch in sources.branches_for_pipeline(pipeline)]
    return select_entries(branches, columns, _request_window(request))


def _order_and_limit(select: exp.Select, request: LogqlRequest) -> exp.Select:
    select.order_by(sort_key(column_node((_TIME_COLUMN,)), not request.is_oldest_first), copy=False)
    return select.limit(number_literal(str(request.limit)), copy=False)


def _request_window(request: LogqlRequest) -> TimeRange:
    return TimeRange(request.start_us, request.end_us)


# The labels with which Loki marks an entry that a parser stage could not parse.
PARSE_ERROR_LABELS: Final = frozenset({"__error__", "__error_details__"})

_NUMBER_COMPARISON_TEMPLATES: Final = {
    ComparisonOperator.EQUAL: "@value = @number",
    ComparisonOperator.NOT_EQUAL: "@value != @number",
    ComparisonOperator.GREATER: "@value > @number",
    ComparisonOperator.GREATER_OR_EQUAL: "@value >= @number",
    ComparisonOperator.LESS: "@value < @number",
    ComparisonOperator.LESS_OR_EQUAL: "@value <= @number",
}
# A text such as `NaN` is converted to NaN, which engines may treat as greater than all numbers.
_GREATER_COMPARISONS: Final = frozenset({ComparisonOperator.GREATER, ComparisonOperator.GREATER_OR_EQUAL})
# Patterns that Python matches in linear time, so that the engine is not needed: literal characters, with `.*` or `.+`
# only at the beginning and the end.
_SIMPLE_REGEX_PATTERN: Final = re.compile(r"(?:\.[*+])?(?:[\w \-/:@.]|\\[.\-/])*(?:\.[*+])?")
_MAX_SIMPLE_REGEX_CHARACTERS: Final = 300
_ANY_TEXT_PATTERN: Final = ".*"
_NON_EMPTY_PATTERN: Final = ".+"

ConditionOrConstant = exp.Expr | bool


class PipelineTranslator(msgspec.Struct):
    """A translator of a pipeline, stage by stage, to conditions on the events of one sub-query.

    The request's parameters already ensure that the labels `labels_matched_by_parameters` have the requested values, so
    that matchers of these labels need no condition.
    """

    labels: EventLabels
    labels_matched_by_parameters: frozenset[str] = frozenset()
    pipeline_state: PipelineState = msgspec.field(default_factory=PipelineState)

    def translate_pipeline(self, pipeline: Pipeline) -> list[exp.Expr] | None:
        """Return the conditions that an event must all meet; None if no event of the sub-query can meet them."""
        conditions: list[ConditionOrConstant] = [self._matcher_condition(matcher) for matcher in pipeline.matchers]
        if False in conditions:
            return None
        conditions += [self._apply_stage(stage) for stage in pipeline.stages]
        return None if False in conditions else [one for one in conditions if not isinstance(one, bool)]

    def _matcher_condition(self, matcher: TextMatch) -> ConditionOrConstant:
        if matcher.label in self.labels_matched_by_parameters and matcher.operator is ComparisonOperator.EQUAL:
            return True
        return self._text_condition(
            matcher, self.labels.label_value(matcher.label, PipelineState(), matcher.text_offset)
        )

    def _apply_stage(self, stage: Stage) -> ConditionOrConstant:
        if self.pipeline_state.has_line_format and isinstance(stage, LineFilter | ParserStage):
            raise QueryUnsupported(
                "A line that line_format has made can be neither searched nor parsed.",
                hint="Put this stage before line_format.",
                span=self.labels.sub_query_info.query_text_span(stage.text_offset),
            )
        match stage:
            case LineFilter():
                return self._line_filter_condition(stage)
            case LabelFilter(match):
                return self._label_match_condition(match)
        self.pipeline_state = self.pipeline_state.with_stage(stage)
        return True

    def _line_filter_condition(self, stage: LineFilter) -> ConditionOrConstant:
        line = self.labels.message_column()
        if "" in stage.texts:
            return not stage.is_negated
        if stage.is_regex:
            found = [_line_regex_condition(line, f"(?s){pattern}", stage.text_offset) for pattern in stage.texts]
        else:
            found = [
                fill_query_template("STRPOS(@line, @text) > 0", stage.text_offset, line=line, text=text)
                for text in stage.texts
            ]
        condition = join_with_or(found)
        return (
            fill_query_template("(@condition) IS NOT TRUE", stage.text_offset, condition=condition.unnest())
            if stage.is_negated
            else condition
        )

    def _label_match_condition(self, match: LabelMatch) -> ConditionOrConstant:
        match match:
            case MatchConjunction(left, right):
                return _conjunction(self._label_match_condition(left), self._label_match_condition(right))
            case MatchDisjunction(left, right):
                return _disjunction(self._label_match_condition(left), self._label_match_condition(right))
            case TextMatch(label) if label in PARSE_ERROR_LABELS:
                return self._error_label_condition(match)
            case TextMatch():
                return self._text_condition(
                    match, self.labels.label_value(match.label, self.pipeline_state, match.text_offset)
                )
            case NumberMatch():
                return self._number_condition(match)

    def _error_label_condition(self, match: TextMatch) -> ConditionOrConstant:
        """Return True for a filter such as `__error__=""`, which keeps entries without error labels; refuse others.

        Entries never have error labels in cordwood, so such a filter keeps all entries.
        """
        if match.text == "" and match.operator is ComparisonOperator.EQUAL:
            return True
        raise QueryUnsupported(
            f"{match.label} is never set: an entry that a stage cannot read has no labels of it.",
            hint=f'Only {match.label}="" can be asked.',
            span=self.labels.sub_query_info.query_text_span(match.text_offset),
        )

    def _text_condition(self, match: TextMatch, value: LabelValue | None) -> ConditionOrConstant:
        is_negated = match.operator in NEGATED_COMPARISONS
        if match.operator in REGEX_COMPARISONS:
            found = _regex_condition(value, match.text, match.text_offset)
        else:
            found = _equality_condition(value, match.text, match.text_offset)
        if isinstance(found, bool):
            return found != is_negated
        return (
            fill_query_template("(@condition) IS NOT TRUE", match.text_offset, condition=found.unnest())
            if is_negated
            else found
        )

    def _number_condition(self, match: NumberMatch) -> ConditionOrConstant:
        value = self.labels.label_value(match.label, self.pipeline_state, match.text_offset)
        if value is None:
            return False
        converted = as_number(value.text_expression, match.number_kind, match.text_offset)
        if match.operator in _GREATER_COMPARISONS:
            converted = internal_call("not_nan", converted)
        compared = number_literal(f"{match.number!r}", match.text_offset)
        return fill_query_template(
            _NUMBER_COMPARISON_TEMPLATES[match.operator], match.text_offset, value=converted, number=compared
        )


def _matcher_may_accept(matcher: TextMatch, text: str) -> bool:
    """Return whether a matcher possibly accepts a text.

    A pattern that only the engine can match counts as possibly accepting the text.
    """
    if matcher.operator not in REGEX_COMPARISONS:
        return (matcher.text == text) != (matcher.operator in NEGATED_COMPARISONS)
    known = _match_simple_regex(matcher.text, text)
    return known is None or known != (matcher.operator in NEGATED_COMPARISONS)


def _equality_condition(value: LabelValue | None, text: str, offset: int) -> ConditionOrConstant:
    """Return the condition that a label's value equals a text; a missing label counts as the empty text."""
    if value is None or value.constant_text is not None:
        return (value.constant_text if value else "") == text
    if text == "":
        return fill_query_template("IFNULL(@value, '') = ''", offset, value=value.text_expression)
    return fill_query_template("@value = @text", offset, value=value.text_expression, text=text)


def _regex_condition(value: LabelValue | None, pattern: str, offset: int) -> ConditionOrConstant:
    """Return the condition that a label's whole value matches a pattern; a missing label counts as the empty text."""
    if pattern == _ANY_TEXT_PATTERN:
        return True
    if value is not None and value.constant_text is None:
        if pattern == _NON_EMPTY_PATTERN:
            return fill_query_template("IFNULL(@value, '') != ''", offset, value=value.text_expression)
        return _regexp_contains(
            fill_query_template("IFNULL(@value, '')", offset, value=value.text_expression), f"^(?:{pattern})$", offset
        )
    constant = (value.constant_text if value else None) or ""
    known = _match_simple_regex(pattern, constant)
    if known is not None:
        return known
    return _regexp_contains(fill_query_template("@text", offset, text=constant), f"^(?:{pattern})$", offset)


def _match_simple_regex(pattern: str, text: str) -> bool | None:
    """Return whether a simple pattern matches the whole text; None for a pattern that only the engine can match."""
    alternatives = pattern.split("|")
    if len(pattern) > _MAX_SIMPLE_REGEX_CHARACTERS or len(text) > _MAX_SIMPLE_REGEX_CHARACTERS:
        return None
    if not all(_SIMPLE_REGEX_PATTERN.fullmatch(alternative) for alternative in alternatives):
        return None
    return any(re.fullmatch(alternative, text) for alternative in alternatives)


def _regexp_contains(text: exp.Expr, pattern: str, offset: int) -> exp.Expr:
    return fill_query_template("REGEXP_CONTAINS(@text, @pattern)", offset, text=text, pattern=pattern)


def _line_regex_condition(line: exp.Expr, pattern: str, offset: int) -> exp.Expr:
    """Return the condition that a line matches a pattern anywhere; a missing line counts as the empty text.

    If the empty text cannot match, the condition stays in the form for which engines can skip blocks by their index.
    """
    found = _regexp_contains(line, pattern, offset)
    if not may_match_empty_text(pattern):
        return found
    missing = _regexp_contains(text_literal("", offset), pattern, offset)
    return fill_query_template("IFNULL(@found, @missing)", offset, found=found, missing=missing)


def _conjunction(left: ConditionOrConstant, right: ConditionOrConstant) -> ConditionOrConstant:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return fill_query_template("(@both)", 0, both=join_with_and([left, right]))


def _disjunction(left: ConditionOrConstant, right: ConditionOrConstant) -> ConditionOrConstant:
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return join_with_or([left, right])
