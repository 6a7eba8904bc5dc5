"""Translation of LogQL's metric queries to relations, with columns for the labels, the step's number and the value."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.labels import MAX_LABELS_PER_SERIES, as_number, label_column_name, label_reference
from cordwood.logql.log_queries import (
    ReadableSubQueries,
    SourceBranch,
    TimeRange,
    select_entries,
    select_from_relation,
    union_all,
)
from cordwood.logql.parse import RANKING_FUNCTIONS, SORTING_FUNCTIONS
from cordwood.logql.syntax import (
    BinaryOperation,
    ComparisonOperator,
    Grouping,
    MetricQuery,
    NumberLiteral,
    RangeAggregate,
    SampleSteps,
    VectorAggregate,
)
from cordwood.lql.columns import SubQueryInfo
from cordwood.sql.budget import copy_tree
from cordwood.sql.nodes import internal_call
from cordwood.sql.query_templates import (
    alias_node,
    column_node,
    fill_query_template,
    number_literal,
    sort_key,
    text_literal,
)

# The maximum number of steps whose ranges contain the same entry. The limit is necessary, because the engine counts an
# entry once for each such step.
MAX_OVERLAPPING_STEPS: Final = 1_500
# The maximum number of steps whose ranges contain the same entry, for functions that need all values of a range at
# once. Partial aggregates of such functions cannot be combined.
MAX_UNCOMBINABLE_OVERLAPPING_STEPS: Final = 60

STEP_COLUMN: Final = "step_number"
VALUE_COLUMN: Final = "value"
_MICROSECONDS_PER_SECOND: Final = 1_000_000

_ARITHMETIC_FUNCTION_NAMES: Final[Mapping[str, str]] = {
    "+": "ieee_add",
    "-": "ieee_subtract",
    "*": "ieee_multiply",
    "%": "ieee_remainder",
    "^": "ieee_power",
}
# Engines may treat NaN as the greatest number and as equal to itself. In LogQL, a comparison with NaN is false, except
# `!=`.
_COMPARISON_TEMPLATES: Final[Mapping[str, str]] = {
    "!=": "(@left != @right OR IS_NAN(@left) OR IS_NAN(@right))",
    **{
        operator: f"(@left {operator.replace('==', '=')} @right AND NOT IS_NAN(@left) AND NOT IS_NAN(@right))"
        for operator in ("==", ">", ">=", "<", "<=")
    },
}
# The minimum and the maximum of samples ignore NaN, unless all samples are NaN.
_EXTREME_TEMPLATE: Final = "IFNULL({name}(IF(IS_NAN({column}), NULL, {column})), {name}({column}))"


def _extreme_sql(name: str, column: str) -> str:
    return _EXTREME_TEMPLATE.format(name=name, column=column)


_VECTOR_AGGREGATE_TEMPLATES: Final[Mapping[str, str]] = {
    "sum": "SUM(value)",
    "avg": "AVG(value)",
    "min": _extreme_sql("MIN", VALUE_COLUMN),
    "max": _extreme_sql("MAX", VALUE_COLUMN),
    "count": "CAST(COUNT(value) AS FLOAT64)",
    "stddev": "STDDEV_POP(value)",
    "stdvar": "VAR_POP(value)",
}


class RangeFunction(msgspec.Struct, frozen=True):
    """A function such as `rate` over the samples of a range, as the SQL that aggregates them.

    `combining_aggregate_sql` is the SQL that combines partial aggregates, or None if they cannot be combined. If
    `is_rate` is set, the aggregate is divided by the length of the range in seconds.
    """

    aggregate_sql: str
    combining_aggregate_sql: str | None = None
    is_rate: bool = False


_COUNT_FUNCTION: Final = RangeFunction("CAST(COUNT(*) AS FLOAT64)", "SUM(part_value)")
_SUM_FUNCTION: Final = RangeFunction("SUM(sample_value)", "SUM(part_value)")
_MIN_FUNCTION: Final = RangeFunction(_extreme_sql("MIN", "sample_value"), _extreme_sql("MIN", "part_value"))
_MAX_FUNCTION: Final = RangeFunction(_extreme_sql("MAX", "sample_value"), _extreme_sql("MAX", "part_value"))
_RANGE_FUNCTIONS: Final[Mapping[str, RangeFunction]] = {
    "count_over_time": _COUNT_FUNCTION,
    "rate": RangeFunction(_COUNT_FUNCTION.aggregate_sql, _COUNT_FUNCTION.combining_aggregate_sql, is_rate=True),
    "bytes_over_time": _SUM_FUNCTION,
    "bytes_rate": RangeFunction(_SUM_FUNCTION.aggregate_sql, _SUM_FUNCTION.combining_aggregate_sql, is_rate=True),
    "sum_over_time": _SUM_FUNCTION,
    "min_over_time": _MIN_FUNCTION,
    "max_over_time": _MAX_FUNCTION,
    "avg_over_time": RangeFunction("AVG(sample_value)"),
    "stddev_over_time": RangeFunction("STDDEV_POP(sample_value)"),
    "stdvar_over_time": RangeFunction("VAR_POP(sample_value)"),
    "first_over_time": RangeFunction("MIN_BY(sample_value, entry_us)"),
    "last_over_time": RangeFunction("MAX_BY(sample_value, entry_us)"),
}
_UNWRAPPED_RATE_FUNCTION: Final = RangeFunction(
    _SUM_FUNCTION.aggregate_sql, _SUM_FUNCTION.combining_aggregate_sql, is_rate=True
)
# quantile_over_time has no SQL here, because its quantile is a number from the query.
_QUANTILE_FUNCTION: Final = RangeFunction("")
# For each vector aggregate, the range functions with which it can be computed directly from the entries. For example,
# the sum of the counts of series by a label equals the count of entries by that label.
_RANGE_FUNCTIONS_BY_VECTOR_AGGREGATE: Final[Mapping[str, frozenset[str]]] = {
    "sum": frozenset({"count_over_time", "rate", "bytes_over_time", "bytes_rate", "sum_over_time"}),
    "min": frozenset({"min_over_time"}),
    "max": frozenset({"max_over_time"}),
}


class SeriesRelation(msgspec.Struct, frozen=True):
    """A relation of samples, with one row for each series and step: label columns, `step_number` and `value`."""

    tree: exp.Select
    labels: tuple[str, ...]


class SeriesLabels(msgspec.Struct, frozen=True):
    """The labels of the series that a range aggregate returns.

    If `has_only_listed_labels` is set, the series have exactly `listed_labels`. Otherwise, they also have all labels of
    the streams, except `excluded_labels`.
    """

    listed_labels: tuple[str, ...] = ()
    has_only_listed_labels: bool = False
    excluded_labels: frozenset[str] = frozenset()


_ALL_STREAM_LABELS: Final = SeriesLabels()


class MetricTranslator(msgspec.Struct, frozen=True):
    """Translates metric queries to relations with series.

    `readable_sub_queries` are the sub-queries with the log entries. `sample_steps` are the times for which a request
    wants values.
    """

    readable_sub_queries: ReadableSubQueries
    sample_steps: SampleSteps
    # Metadata of a sub-query, used to locate errors in the text of the query.
    sub_query_info: SubQueryInfo

    def translate(self, node: MetricQuery, groups: SeriesLabels = _ALL_STREAM_LABELS) -> SeriesRelation:
        """Return the series of a query that is not a constant.

        `groups` are the labels that the surrounding query needs.
        """
        match node:
            case RangeAggregate(function_name="absent_over_time"):
                return self._translate_absent_over_time(node)
            case RangeAggregate():
                return self._translate_range_aggregate(node, _series_labels_of(node, groups))
            case VectorAggregate():
                return self._translate_vector_aggregate(node)
            case BinaryOperation():
                return self._translate_binary_operation(node, groups)
            case NumberLiteral():
                raise self._unsupported_error("A number is aggregated, which has no labels.", node.text_offset)

    def _translate_vector_aggregate(self, node: VectorAggregate) -> SeriesRelation:
        grouping, operand = node.grouping, node.operand
        if fold_constant(operand) is not None:
            raise self._unsupported_error(f"{node.function_name} of a number is not supported.", node.text_offset)
        if node.function_name in SORTING_FUNCTIONS:
            # The order of series matters only in an instant vector, which `web/loki_api.py` sorts when it answers.
            return self.translate(operand)
        if self._is_computable_from_entries(node) and isinstance(operand, RangeAggregate):
            return self._translate_range_aggregate(operand, SeriesLabels(grouping.labels, has_only_listed_labels=True))
        needed = _ALL_STREAM_LABELS if grouping.excludes_labels else SeriesLabels(grouping.labels)
        inner = self.translate(operand, needed)
        labels = _labels_after_grouping(inner.labels, grouping)
        if node.function_name in RANKING_FUNCTIONS:
            return _top_or_bottom_series(node, inner, labels)
        value = alias_node(fill_query_template(_VECTOR_AGGREGATE_TEMPLATES[node.function_name]), VALUE_COLUMN)
        return _aggregate_series(inner, labels, value)

    def _is_computable_from_entries(self, node: VectorAggregate) -> bool:
        operand = node.operand
        return (
            isinstance(operand, RangeAggregate)
            and operand.grouping is None
            and not node.grouping.excludes_labels
            and operand.function_name in _RANGE_FUNCTIONS_BY_VECTOR_AGGREGATE.get(node.function_name, ())
        )

    def _translate_binary_operation(self, node: BinaryOperation, groups: SeriesLabels) -> SeriesRelation:
        left, right = fold_constant(node.left), fold_constant(node.right)
        if node.operator == "or" and left is None and right is not None:
            return self._fill_missing_steps(self.translate(node.left, groups), right)
        if node.operator == "or":
            raise self._unsupported_error(
                "or between two vectors is not supported.", node.text_offset, "Write or vector(0)."
            )
        if left is not None and right is None:
            return self._combine_with_number(node, self.translate(node.right, groups), left, is_left=True)
        if right is not None and left is None:
            return self._combine_with_number(node, self.translate(node.left, groups), right, is_left=False)
        if left is not None:
            raise self._unsupported_error("An operation on two numbers is aggregated.", node.text_offset)
        return self._join_vectors(node, self.translate(node.left, groups), self.translate(node.right, groups))

    def _combine_with_number(
        self, node: BinaryOperation, series: SeriesRelation, constant: float, *, is_left: bool
    ) -> SeriesRelation:
        own, other = column_node((VALUE_COLUMN,)), float_literal(constant)
        left, right = (other, own) if is_left else (own, other)
        tree = select_from_relation(_label_columns(series.labels), series.tree, "operand")
        return SeriesRelation(
            _add_step_and_value(node, tree, column_node((STEP_COLUMN,)), own, (left, right)), series.labels
        )

    def _fill_missing_steps(self, series: SeriesRelation, constant: float) -> SeriesRelation:
        """Add a sample with the value `constant` and no labels at each step that has no sample without labels.

        This translates `or vector(…)`.
        """
        unlabelled = select_from_relation([column_node((STEP_COLUMN,))], copy_tree(series.tree), "unlabelled")
        for label in _label_columns(series.labels):
            unlabelled.where(fill_query_template("@label = ''", 0, label=label), copy=False)
        missing = self._missing_samples(unlabelled, dict.fromkeys(series.labels, ""), constant)
        columns = [*_label_columns(series.labels), column_node((STEP_COLUMN,)), column_node((VALUE_COLUMN,))]
        own = select_from_relation(columns, series.tree, "operand")
        return SeriesRelation(union_all([own, missing]), series.labels)

    def _translate_absent_over_time(self, node: RangeAggregate) -> SeriesRelation:
        """Return the series of `absent_over_time`: the value 1 at each step whose range has no entries.

        The labels of the series are those that the selector compares with `=`.
        """
        counted = self._translate_range_aggregate(
            msgspec.structs.replace(node, function_name="count_over_time"), SeriesLabels(has_only_listed_labels=True)
        )
        present = select_from_relation([column_node((STEP_COLUMN,))], counted.tree, "counted")
        matchers = [one for one in node.pipeline.matchers if one.operator is ComparisonOperator.EQUAL and one.text]
        labels = {one.label: one.text for one in matchers}
        return SeriesRelation(self._missing_samples(present, labels, 1.0), tuple(labels))

    def _missing_samples(self, present: exp.Select, labels: Mapping[str, str], constant: float) -> exp.Select:
        """Return a sample with the value `constant` and these labels for each step that does not occur in `present`."""
        names = ("logql_steps", "logql_present")
        steps = exp.Unnest(
            expressions=[fill_query_template("GENERATE_ARRAY(0, @last)", 0, last=self.sample_steps.count - 1)],
            alias=exp.TableAlias(columns=[exp.to_identifier(STEP_COLUMN)]),
            offset=False,
        )
        every = exp.Select(expressions=[column_node((STEP_COLUMN,))]).from_(steps, copy=False)
        columns = [alias_node(text_literal(text), label_column_name(name)) for name, text in labels.items()]
        left, right = column_node((names[0], STEP_COLUMN)), column_node((names[1], STEP_COLUMN))
        columns += [alias_node(left, STEP_COLUMN), alias_node(float_literal(constant), VALUE_COLUMN)]
        tree = select_from_relation(columns, every, "steps")
        joined = exp.Subquery(this=present, alias=exp.TableAlias(this=exp.to_identifier(names[1])))
        same = fill_query_template("@left = @right", 0, left=left, right=right)
        tree.join(joined, on=same, join_type="LEFT", copy=False)
        return tree.where(fill_query_template("@step IS NULL", 0, step=right), copy=False)

    def _join_vectors(self, node: BinaryOperation, left: SeriesRelation, right: SeriesRelation) -> SeriesRelation:
        if set(left.labels) != set(right.labels):
            raise self._unsupported_error(
                "The two sides have different labels.", node.text_offset, "Aggregate both by the same labels."
            )
        names = ("logql_left", "logql_right")
        labels = [alias_node(label_reference(name, names[0]), label_column_name(name)) for name in left.labels]
        tree = select_from_relation(labels, left.tree, "left")
        same = [
            fill_query_template(
                "@left = @right",
                0,
                left=column_node((names[0], STEP_COLUMN)),
                right=column_node((names[1], STEP_COLUMN)),
            )
        ]
        same += [
            fill_query_template(
                "@left = @right", 0, left=label_reference(name, names[0]), right=label_reference(name, names[1])
            )
            for name in left.labels
        ]
        derived = exp.Subquery(this=right.tree, alias=exp.TableAlias(this=exp.to_identifier(names[1])))
        tree.join(derived, on=exp.and_(*same, copy=False), join_type="INNER", copy=False)
        values = column_node((names[0], VALUE_COLUMN)), column_node((names[1], VALUE_COLUMN))
        return SeriesRelation(
            _add_step_and_value(node, tree, column_node((names[0], STEP_COLUMN)), values[0], values), left.labels
        )

    def _translate_range_aggregate(self, node: RangeAggregate, groups: SeriesLabels) -> SeriesRelation:
        branches = self.readable_sub_queries.branches_for_pipeline(node.pipeline)
        labels = self._range_labels(branches, groups, node.text_offset)
        steps = msgspec.structs.replace(
            self.sample_steps, start_us=self.sample_steps.start_us - node.offset_modifier_us
        )
        last_us = steps.start_us + (steps.count - 1) * steps.step_us
        window = TimeRange(steps.start_us - node.range_us + 1, last_us + 1)
        entries = select_entries(branches, lambda branch: self._entry_columns(branch, labels, node), window)
        function = _range_function_of(node)
        overlap = node.range_us // steps.step_us if steps.count > 1 and node.range_us > steps.step_us else 0
        if overlap > (
            MAX_OVERLAPPING_STEPS if function.combining_aggregate_sql else MAX_UNCOMBINABLE_OVERLAPPING_STEPS
        ):
            raise self._unsupported_error(
                f"The range is {overlap:,} times the step.", node.text_offset, "Send a larger step, or a shorter range."
            )
        sampled = _assign_steps(entries, labels, steps, node.range_us)
        if node.unwrap_stage is not None:
            sampled.where(fill_query_template("sample_value IS NOT NULL"), copy=False)
        spread = _repeat_entries_for_steps(sampled, labels, function, is_overlapping=overlap > 0)
        aggregate = (
            function.combining_aggregate_sql if function.combining_aggregate_sql and overlap else function.aggregate_sql
        )
        value = (
            fill_query_template(aggregate)
            if aggregate
            else internal_call("quantile", column_node(("sample_value",)), float_literal(node.quantile or 0.0))
        )
        if function.is_rate:
            value = fill_query_template(
                "@value / @seconds", 0, value=value, seconds=float_literal(node.range_us / _MICROSECONDS_PER_SECOND)
            )
        return _aggregate_series(SeriesRelation(spread, labels), labels, alias_node(value, VALUE_COLUMN))

    def _range_labels(self, branches: Sequence[SourceBranch], groups: SeriesLabels, offset: int) -> tuple[str, ...]:
        if groups.has_only_listed_labels:
            return groups.listed_labels
        names = {name for branch in branches for name in branch.labels.stream_label_names()}
        # All branches have the stages of the same pipeline.
        names = {name for name in names if not branches[0].pipeline_state.is_event_label_removed(name)}
        found = tuple(sorted((names - groups.excluded_labels) | set(groups.listed_labels)))
        if len(found) > MAX_LABELS_PER_SERIES:
            raise self._unsupported_error(
                f"The streams have {len(found)} labels; a series has at most {MAX_LABELS_PER_SERIES}.",
                offset,
                "Name the labels that you need: sum by (…).",
            )
        return found

    def _entry_columns(self, branch: SourceBranch, labels: Sequence[str], node: RangeAggregate) -> list[exp.Expr]:
        columns: list[exp.Expr] = []
        for name in labels:
            value = branch.labels.label_value(name, branch.pipeline_state, node.text_offset)
            text = (
                text_literal("")
                if value is None
                else fill_query_template("IFNULL(@value, '')", 0, value=value.text_expression)
            )
            columns.append(alias_node(text, label_column_name(name)))
        at = fill_query_template("UNIX_MICROS(@time)", 0, time=branch.labels.timestamp_value())
        return [*columns, alias_node(at, "entry_us"), alias_node(self._sample_value(branch, node), "sample_value")]

    def _sample_value(self, branch: SourceBranch, node: RangeAggregate) -> exp.Expr:
        if node.unwrap_stage is not None:
            value = branch.labels.label_value(
                node.unwrap_stage.label, branch.pipeline_state, node.unwrap_stage.text_offset
            )
            if value is None:
                return fill_query_template("CAST(NULL AS FLOAT64)")
            return as_number(value.text_expression, node.unwrap_stage.number_kind, node.unwrap_stage.text_offset)
        if node.function_name.startswith("bytes_"):
            if branch.pipeline_state.has_line_format:
                raise self._unsupported_error(
                    "The bytes of a line that line_format has made cannot be counted.", node.text_offset
                )
            return fill_query_template(
                "CAST(IFNULL(BYTE_LENGTH(@line), 0) AS FLOAT64)", 0, line=branch.labels.message_column()
            )
        return fill_query_template("1.0")

    def _unsupported_error(self, message: str, offset: int, hint: str | None = None) -> QueryUnsupported:
        return QueryUnsupported(message, hint=hint, span=self.sub_query_info.query_text_span(offset))


def _range_function_of(node: RangeAggregate) -> RangeFunction:
    if node.unwrap_stage is not None and node.function_name == "rate":
        return _UNWRAPPED_RATE_FUNCTION
    return _RANGE_FUNCTIONS.get(node.function_name, _QUANTILE_FUNCTION)


def _series_labels_of(node: RangeAggregate, needed: SeriesLabels) -> SeriesLabels:
    """Return the labels that the series of a range aggregate have: those of its own grouping or, without one, `needed`.

    `needed` are the labels that the surrounding query needs.
    """
    if node.grouping is None:
        return needed
    if node.grouping.excludes_labels:
        return SeriesLabels(excluded_labels=frozenset(node.grouping.labels))
    return SeriesLabels(node.grouping.labels, has_only_listed_labels=True)


def _labels_after_grouping(labels: tuple[str, ...], grouping: Grouping) -> tuple[str, ...]:
    if grouping.excludes_labels:
        return tuple(name for name in labels if name not in grouping.labels)
    return tuple(name for name in grouping.labels if name in labels)


def _label_columns(labels: Sequence[str]) -> list[exp.Expr]:
    return [label_reference(name) for name in labels]


def _aggregate_series(inner: SeriesRelation, labels: tuple[str, ...], value: exp.Expr) -> SeriesRelation:
    """Return the series of the aggregate `value`, computed for each step and each combination of values of `labels`."""
    columns = [*_label_columns(labels), column_node((STEP_COLUMN,))]
    tree = select_from_relation([*columns, value], inner.tree, "series")
    return SeriesRelation(tree.group_by(*_label_columns(labels), column_node((STEP_COLUMN,)), copy=False), labels)


def _top_or_bottom_series(node: VectorAggregate, inner: SeriesRelation, groups: Sequence[str]) -> SeriesRelation:
    """Return the samples with the largest or smallest values of each group and step, with all of their labels.

    NaN is neither large nor small: it comes after all numbers.
    """
    order = [sort_key(fill_query_template("IF(IS_NAN(value), 1, 0)"), is_descending=False)]
    order.append(sort_key(column_node((VALUE_COLUMN,)), node.function_name == "topk"))
    order += [sort_key(label, is_descending=False) for label in _label_columns(inner.labels)]
    place = exp.Window(
        this=fill_query_template("ROW_NUMBER()"),
        partition_by=[*_label_columns(groups), column_node((STEP_COLUMN,))],
        order=exp.Order(expressions=order),
        over="OVER",
    )
    columns = [*_label_columns(inner.labels), column_node((STEP_COLUMN,)), column_node((VALUE_COLUMN,))]
    numbered = select_from_relation([*columns, alias_node(place, "place")], inner.tree, "series")
    tree = select_from_relation([copy_tree(one) for one in columns], numbered, "ranked")
    return SeriesRelation(
        tree.where(fill_query_template("place <= @most", 0, most=node.max_series_per_group or 1), copy=False),
        inner.labels,
    )


def _add_step_and_value(
    node: BinaryOperation, tree: exp.Select, step: exp.Expr, kept: exp.Expr, operands: tuple[exp.Expr, exp.Expr]
) -> exp.Select:
    """Add the columns of the step and of an operation's result to `tree`, a SELECT of the labels.

    A comparison filters the rows; the remaining rows have the value `kept`. A comparison with the modifier `bool`
    filters no rows; its result is 0 or 1.
    """
    left, right = operands
    tree.select(alias_node(step, STEP_COLUMN), copy=False)
    if node.operator not in _COMPARISON_OPERATORS:
        return tree.select(alias_node(_arithmetic_result(node.operator, left, right), VALUE_COLUMN), copy=False)
    condition = fill_query_template(_COMPARISON_TEMPLATES[node.operator], 0, left=left, right=right)
    if node.has_bool_modifier:
        return tree.select(
            alias_node(fill_query_template("IF(@condition, 1.0, 0.0)", 0, condition=condition), VALUE_COLUMN),
            copy=False,
        )
    return tree.select(alias_node(copy_tree(kept), VALUE_COLUMN), copy=False).where(condition, copy=False)


def _arithmetic_result(operator: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the result by IEEE 754, as in Loki: infinite or NaN where BigQuery's arithmetic would fail."""
    if operator == "/":
        return fill_query_template("IEEE_DIVIDE(@left, @right)", 0, left=left, right=right)
    return internal_call(_ARITHMETIC_FUNCTION_NAMES[operator], copy_tree(left), copy_tree(right))


def _assign_steps(entries: exp.Select, labels: Sequence[str], steps: SampleSteps, range_us: int) -> exp.Select:
    """Return each entry with the numbers of the first and the last step whose ranges contain the entry.

    The range of a step at time T contains the entries later than T - range, up to and including T.
    """
    first = fill_query_template(
        "GREATEST(0, DIV(entry_us - @start + @step - 1, @step))",
        0,
        start=_integer_literal(steps.start_us),
        step=_integer_literal(steps.step_us),
    )
    last = fill_query_template(
        "LEAST(@last, DIV(entry_us - @start + @range - 1, @step))",
        0,
        last=steps.count - 1,
        start=_integer_literal(steps.start_us),
        range=_integer_literal(range_us),
        step=_integer_literal(steps.step_us),
    )
    columns = [*_label_columns(labels), column_node(("sample_value",)), column_node(("entry_us",))]
    tree = select_from_relation(
        [*columns, alias_node(first, "first_step"), alias_node(last, "last_step")], entries, "entries"
    )
    within = select_from_relation([exp.Star()], tree, "sampled")
    return within.where(fill_query_template("first_step <= last_step"), copy=False)


def _repeat_entries_for_steps(
    sampled: exp.Select, labels: Sequence[str], function: RangeFunction, *, is_overlapping: bool
) -> exp.Select:
    """Repeat each entry for each step whose range contains the entry.

    If the function's partial aggregates can be combined, the entries with the same first and last step are aggregated
    first, and this partial aggregate is repeated instead of the entries. If `is_overlapping` is not set, an entry is in
    the range of one step only, so nothing is repeated.
    """
    if not is_overlapping:
        columns = [
            *_label_columns(labels),
            column_node(("sample_value",)),
            column_node(("entry_us",)),
            alias_node(column_node(("first_step",)), STEP_COLUMN),
        ]
        return select_from_relation(columns, sampled, "windows")
    own = [column_node(("sample_value",)), column_node(("entry_us",))]
    if function.combining_aggregate_sql:
        grouped = [*_label_columns(labels), column_node(("first_step",)), column_node(("last_step",))]
        parts = select_from_relation(
            [*grouped, alias_node(fill_query_template(function.aggregate_sql), "part_value")], sampled, "windows"
        )
        sampled = parts.group_by(*[copy_tree(one) for one in grouped], copy=False)
        own = [column_node(("part_value",))]
    tree = select_from_relation([*_label_columns(labels), *own, column_node((STEP_COLUMN,))], sampled, "parts")
    steps = exp.Unnest(
        expressions=[fill_query_template("GENERATE_ARRAY(first_step, last_step)")],
        alias=exp.TableAlias(columns=[exp.to_identifier(STEP_COLUMN)]),
        offset=False,
    )
    return tree.join(steps, join_type="CROSS", copy=False)


def aggregate_series_to_arrays(series: SeriesRelation, most: int) -> exp.Select:
    """Return one row for each series: its labels' values, the array of its steps, and the array of its values as texts.

    If there are more than `most` series, `most` + 1 rows are returned, so that the caller notices.
    """
    steps = fill_query_template("ARRAY_AGG(step_number ORDER BY step_number)")
    values = fill_query_template("ARRAY_AGG(CAST(value AS STRING) ORDER BY step_number)")
    columns = [*_label_columns(series.labels), alias_node(steps, "steps"), alias_node(values, "samples")]
    tree = select_from_relation(columns, series.tree, "result").where(
        fill_query_template("value IS NOT NULL"), copy=False
    )
    if not series.labels:
        return tree
    tree.group_by(*_label_columns(series.labels), copy=False)
    tree.order_by(*[sort_key(label, is_descending=False) for label in _label_columns(series.labels)], copy=False)
    return tree.limit(number_literal(str(most + 1)), copy=False)


def float_literal(value: float) -> exp.Expr:
    text = repr(float(value))
    if text in {"inf", "-inf", "nan"}:
        return fill_query_template("CAST(@text AS FLOAT64)", 0, text=text)
    return number_literal(text)


def _integer_literal(value: int) -> exp.Expr:
    return number_literal(str(value))


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _power(left: float, right: float) -> float:
    """Return a power by IEEE 754; Python raises exceptions for results that are infinite or NaN."""
    is_negative = math.copysign(1, left) < 0 and math.fmod(right, 2) in (1, -1)
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if is_negative else math.inf
    except ValueError:
        if left:
            return math.nan
        return -math.inf if is_negative else math.inf


_ARITHMETIC_FUNCTIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: math.fmod(left, right) if right and math.isfinite(left) else math.nan,
    "^": _power,
    # `or` yields the left operand if it has a sample, and a constant always has one.
    "or": lambda left, _: left,
}
_COMPARISON_FUNCTIONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}
_COMPARISON_OPERATORS: Final = frozenset(_COMPARISON_FUNCTIONS)


def fold_constant(node: MetricQuery) -> float | None:
    """Return the value of a constant query, which reads no entries; None for a query that reads entries."""
    if isinstance(node, NumberLiteral):
        return node.value
    if not isinstance(node, BinaryOperation):
        return None
    left, right = fold_constant(node.left), fold_constant(node.right)
    if left is None or right is None:
        return None
    if node.operator in _COMPARISON_FUNCTIONS:
        return float(_COMPARISON_FUNCTIONS[node.operator](left, right))
    return _ARITHMETIC_FUNCTIONS[node.operator](left, right)


def is_constant_vector(node: MetricQuery) -> bool:
    """Return whether a constant query is a vector: a number in it is written as `vector(…)`."""
    if isinstance(node, BinaryOperation):
        return is_constant_vector(node.left) or is_constant_vector(node.right)
    return isinstance(node, NumberLiteral) and node.is_vector
