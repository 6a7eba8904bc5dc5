"""The physical plan of a statement: its variants, each of which is SQL in segments: texts and typed placeholders.

A variant is one way to run the statement. The variants are fixed when the statement is compiled. For each call,
`Plan.find_variant_or_fallback` selects a variant by the state of the store, and `print_segments` writes its SQL. The
SQL of statements is assembled nowhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec


class OptionalPredicate(msgspec.Struct, frozen=True, tag=True):
    """A condition `(null_test OR predicate)` that is true if the parameter is NULL.

    `null_test` checks whether the parameter is NULL. The SQL of a call contains only `null_test` or only `predicate`,
    depending on the parameter's value, because an engine would plan both.
    """

    parameter: str
    null_test: "SqlSegments"
    predicate: "SqlSegments"


class BlockFilter(msgspec.Struct, frozen=True, tag=True):
    """A condition that restricts a scan to the blocks of flushed events in which a message may match the filter.

    A message matches the filter if it contains all `ngrams` and the values of the parameters `text_parameter_names`,
    and matches the regular expressions in the parameters `pattern_parameter_names`.
    """

    stream: str
    ngrams: tuple[str, ...]
    text_parameter_names: tuple[str, ...] = ()
    pattern_parameter_names: tuple[str, ...] = ()


class UncoveredBlocksCondition(msgspec.Struct, frozen=True, tag=True):
    """A condition for those flushed events of a stream that no partial answer includes, so that a scan must read them.

    A partial answer covers one hour of a block. If `is_for_edge_blocks` is set, the condition selects, in blocks of
    which only some hours are covered, the events of the other hours. Otherwise, it selects the events of the blocks
    that are not covered at all.
    """

    stream: str
    is_for_edge_blocks: bool = False


class PartialRowsSelect(msgspec.Struct, frozen=True, tag=True):
    """A SELECT of the rows of all partial answers, each with `column_count` columns."""

    column_count: int


SqlSegment = str | OptionalPredicate | BlockFilter | UncoveredBlocksCondition | PartialRowsSelect
SqlSegments = tuple[SqlSegment, ...]

# The numbers of the blocks to read, by block filter. None means all blocks.
BlockNumbersByFilter = Mapping[BlockFilter, Sequence[int] | None]
_NO_BLOCK_NUMBERS: Final[BlockNumbersByFilter] = {}


class EventRange(StrEnum):
    """The part of a stream's events that a variant of a plan reads.

    `RECENTLY_CACHED` are the events in DuckDB's cache of recent events. `NEWLY_ARRIVED` are events that have just
    arrived, which only followed queries read.
    """

    ALL = "all"
    FLUSHED = "flushed"
    RECENTLY_CACHED = "recent"
    NEWLY_ARRIVED = "arrived"


class PlanVariant(msgspec.Struct, frozen=True):
    """One way to run a statement.

    A variant with `has_optimistic_redaction` does not redact, and fails if a text may need redaction.
    """

    segments: SqlSegments
    event_range: EventRange = EventRange.ALL
    has_optimistic_redaction: bool = False

    def block_filters(self) -> tuple[BlockFilter, ...]:
        """Return the block filters of the variant's scans, without duplicates."""
        return tuple(dict.fromkeys(_find_block_filters(self.segments)))


class TimeComparison(StrEnum):
    """The comparison of an event's time with a bound."""

    AFTER = ">"
    AT_OR_AFTER = ">="
    BEFORE = "<"
    AT_OR_BEFORE = "<="


class MergeAggregate(StrEnum):
    """The aggregate that merges a column of partial answers. `GROUP_KEY` marks a column by which rows are grouped."""

    GROUP_KEY = "key"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"


class PartialAnswerPlan(msgspec.Struct, frozen=True):
    """The plan of an aggregation over one stream that reuses partial answers of blocks.

    `blocks_query` aggregates each hour of each block separately, without the time bounds of WHERE. It returns the
    columns that `merge_aggregates` describes, then a column with the hour, and a column with the block's number.
    `bounds_query` returns the values of the time bounds in microseconds. `time_bound_comparisons` has, for each bound,
    the operator that compares an event's time with it. `variants` are the ways to run the statement with partial
    answers. Each variant aggregates the events that no partial answer includes, and merges the result with the rows of
    the partial answers.
    """

    stream: str
    merge_aggregates: tuple[MergeAggregate, ...]
    time_bound_comparisons: tuple[TimeComparison, ...]
    bounds_query: SqlSegments
    blocks_query: SqlSegments
    variants: tuple[PlanVariant, ...]


class Plan(msgspec.Struct, frozen=True):
    """The variants of a statement. The first variant reads all events and redacts them, so it can always be used."""

    variants: tuple[PlanVariant, ...]
    partial_plan: PartialAnswerPlan | None = None

    @property
    def sql(self) -> str:
        """The SQL of the first variant, with its optional predicates in full, for display."""
        return print_segments(self.variants[0].segments)

    def find_variant(self, reads: EventRange, *, optimistic: bool = False) -> PlanVariant | None:
        """Return the variant that reads these events with or without optimistic redaction; None if there is none."""
        matches = (
            variant
            for variant in self.variants
            if variant.event_range is reads and variant.has_optimistic_redaction is optimistic
        )
        return next(matches, None)

    def find_variant_or_fallback(self, reads: EventRange, *, optimistic: bool = False) -> PlanVariant | None:
        """Return the variant that reads these events, or a fallback; None if the plan has neither.

        Only flushed events have a fallback: the variant that reads all events. With `optimistic`, both must have
        optimistic redaction.
        """
        variant = self.find_variant(reads, optimistic=optimistic)
        if variant is None and reads is EventRange.FLUSHED:
            return self.find_variant(EventRange.ALL, optimistic=optimistic)
        return variant


def plan_without_placeholders(sql: str) -> Plan:
    """Return a plan with a single variant that has this SQL and no placeholders."""
    return Plan((PlanVariant((sql,)),))


def print_segments(
    segments: SqlSegments, values: Mapping[str, object] | None = None, blocks: BlockNumbersByFilter = _NO_BLOCK_NUMBERS
) -> str:
    """Return the SQL of segments. Without `values`, optional predicates are written as `(null_test OR predicate)`."""
    return "".join(_print_each_segment(segments, values, blocks))


class PartialAnswerSql(msgspec.Struct, frozen=True):
    """The SQL that `fill_partial_answer_segments` writes in place of a plan's placeholders for partial answers.

    `edge_blocks_condition` replaces each `UncoveredBlocksCondition` with `is_for_edge_blocks`, and
    `uncovered_blocks_condition` replaces the others. `partial_rows_select` is the SELECT of the rows of partial
    answers.
    """

    uncovered_blocks_condition: str
    edge_blocks_condition: str = "false"
    partial_rows_select: str = ""


def fill_partial_answer_segments(segments: SqlSegments, filling: PartialAnswerSql) -> SqlSegments:
    """Replace the segments `UncoveredBlocksCondition` and `PartialRowsSelect` by SQL."""
    return tuple(_fill_partial_answer_segment(segment, filling) for segment in segments)


def _fill_partial_answer_segment(segment: SqlSegment, filling: PartialAnswerSql) -> SqlSegment:
    if isinstance(segment, UncoveredBlocksCondition):
        return filling.edge_blocks_condition if segment.is_for_edge_blocks else filling.uncovered_blocks_condition
    if isinstance(segment, PartialRowsSelect):
        return filling.partial_rows_select
    if isinstance(segment, OptionalPredicate):
        sides = (fill_partial_answer_segments(side, filling) for side in (segment.null_test, segment.predicate))
        return OptionalPredicate(segment.parameter, *sides)
    return segment


def _print_each_segment(
    segments: SqlSegments, values: Mapping[str, object] | None, blocks: BlockNumbersByFilter
) -> Iterator[str]:
    for segment in segments:
        if isinstance(segment, str):
            yield segment
        elif isinstance(segment, BlockFilter):
            yield _block_condition(blocks.get(segment))
        elif isinstance(segment, UncoveredBlocksCondition):
            yield "false" if segment.is_for_edge_blocks else "true"
        elif isinstance(segment, PartialRowsSelect):
            yield f"SELECT {', '.join(['NULL'] * segment.column_count)} WHERE false"
        else:
            yield "("
            if values is None or values[segment.parameter] is None:
                yield from _print_each_segment(segment.null_test, values, blocks)
            if values is None:
                yield " OR "
            if values is None or values[segment.parameter] is not None:
                yield from _print_each_segment(segment.predicate, values, blocks)
            yield ")"


def _block_condition(blocks: Sequence[int] | None) -> str:
    return "true" if blocks is None else f"block IN ({', '.join(f'{block:d}' for block in blocks)})"


def _find_block_filters(segments: SqlSegments) -> Iterator[BlockFilter]:
    for segment in segments:
        if isinstance(segment, BlockFilter):
            yield segment
        elif isinstance(segment, OptionalPredicate):
            yield from _find_block_filters(segment.null_test)
            yield from _find_block_filters(segment.predicate)
