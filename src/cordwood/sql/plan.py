"""The physical plan of a statement: variants that an engine may run, as printed segments and typed placeholders.

The variants are fixed when the statement is compiled. For each call, `Plan.choose_variant` selects a variant by the
state of the store, and `print_segments` writes its SQL. The SQL of statements is assembled nowhere else.
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
    null_test: "Segments"
    predicate: "Segments"


class BlockFilter(msgspec.Struct, frozen=True, tag=True):
    """A condition that restricts a scan to blocks of a stream's flushed events whose messages may contain all n-grams.

    `text_parameter_names` and `pattern_parameter_names` are names of parameters: the message must also contain the values of `text_parameter_names`, and match the
    regular expressions that are the values of `pattern_parameter_names`.
    """

    stream: str
    ngrams: tuple[str, ...]
    text_parameter_names: tuple[str, ...] = ()
    pattern_parameter_names: tuple[str, ...] = ()


class UncoveredBlocksCondition(msgspec.Struct, frozen=True, tag=True):
    """A condition for the flushed events of a stream that a scan must read because no partial answer includes them.

    If `is_for_edge_blocks` is set, these are events of blocks that partial answers include only for some hours: the events
    outside of these hours. Otherwise, these are the events of the blocks that no partial answer includes at all.
    """

    stream: str
    is_for_edge_blocks: bool = False


class PartialRowsSelect(msgspec.Struct, frozen=True, tag=True):
    """A SELECT of the rows of partial answers; `column_count` is the number of their columns."""

    column_count: int


Segment = str | OptionalPredicate | BlockFilter | UncoveredBlocksCondition | PartialRowsSelect
Segments = tuple[Segment, ...]

# The numbers of the blocks to read, by block filter. None means all blocks.
BlockNumbersByFilter = Mapping[BlockFilter, Sequence[int] | None]
_NO_BLOCK_NUMBERS: Final[BlockNumbersByFilter] = {}


class EventRange(StrEnum):
    """The part of a stream's events that a variant reads.

    `RECENTLY_CACHED` are the events in DuckDB's cache of recent events. `NEWLY_ARRIVED` are new events, for followed queries.
    """

    ALL = "all"
    FLUSHED = "flushed"
    RECENTLY_CACHED = "recent"
    NEWLY_ARRIVED = "arrived"


class PlanVariant(msgspec.Struct, frozen=True):
    """One way to run a statement; an optimistic variant does not redact, and fails if a text may need redaction."""

    segments: Segments
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
    """The aggregate that merges partial results of a column; `KEY` marks a column by which the rows are grouped."""

    KEY = "key"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"


class PartialPlan(msgspec.Struct, frozen=True):
    """The plan of an aggregation over one stream that reuses partial answers of blocks.

    `blocks_query` aggregates each hour of each block separately, without the time bounds of WHERE. It returns the
    columns that `merge_aggregates` describes, then a column with the hour, and a column with the block's number.
    `bounds_query` returns the values of the time bounds in microseconds. `comparisons` has, for each bound, the
    operator that compares an event's time with it. `variants` are the ways to run the statement with partial answers.
    Each variant aggregates the events that no partial answer includes, and merges the result with the rows of the
    partial answers.
    """

    stream: str
    merge_aggregates: tuple[MergeAggregate, ...]
    comparisons: tuple[TimeComparison, ...]
    bounds_query: Segments
    blocks_query: Segments
    variants: tuple[PlanVariant, ...]


class Plan(msgspec.Struct, frozen=True):
    """The variants of a statement. The first one reads all events and redacts, so it is always valid."""

    variants: tuple[PlanVariant, ...]
    partial_plan: PartialPlan | None = None

    @property
    def sql(self) -> str:
        """The SQL of the first variant, with its optional predicates in full, for display."""
        return print_segments(self.variants[0].segments)

    def find_variant(self, reads: EventRange, *, optimistic: bool = False) -> PlanVariant | None:
        """Return the variant with exactly these properties; None if the plan has none."""
        matches = (
            variant
            for variant in self.variants
            if variant.event_range is reads and variant.has_optimistic_redaction is optimistic
        )
        return next(matches, None)

    def choose_variant(self, reads: EventRange, *, optimistic: bool = False) -> PlanVariant | None:
        """Return the variant that reads these events.

        If the plan has no variant for flushed events, return the variant for all events. Return None if the plan has no
        matching variant, for example no optimistic variant, or none for recent events.
        """
        variant = self.find_variant(reads, optimistic=optimistic)
        if variant is None and reads is EventRange.FLUSHED:
            return self.find_variant(EventRange.ALL, optimistic=optimistic)
        return variant


def fixed_plan(sql: str) -> Plan:
    """Return a plan whose only variant is this SQL, without placeholders."""
    return Plan((PlanVariant((sql,)),))


def print_segments(
    segments: Segments, values: Mapping[str, object] | None = None, blocks: BlockNumbersByFilter = _NO_BLOCK_NUMBERS
) -> str:
    """Write the SQL of segments. Without `values`, optional predicates are written as `(null_test OR predicate)`."""
    return "".join(_print_each_segment(segments, values, blocks))


class PartialAnswerSql(msgspec.Struct, frozen=True):
    """The SQL by which `fill_partial_answer_segments` replaces placeholders of a plan with partial answers.

    `uncovered_blocks_condition` replaces an `UncoveredBlocksCondition` without `is_for_edge_blocks`, and `edge_blocks_condition` replaces
    one with `is_for_edge_blocks`. `partial_rows_select` is the SELECT of the rows of partial answers.
    """

    uncovered_blocks_condition: str
    edge_blocks_condition: str = "false"
    partial_rows_select: str = ""


def fill_partial_answer_segments(segments: Segments, filling: PartialAnswerSql) -> Segments:
    """Replace the segments `UncoveredBlocksCondition` and `PartialRowsSelect` by SQL."""
    return tuple(_fill_partial_answer_segment(segment, filling) for segment in segments)


def _fill_partial_answer_segment(segment: Segment, filling: PartialAnswerSql) -> Segment:
    if isinstance(segment, UncoveredBlocksCondition):
        return filling.edge_blocks_condition if segment.is_for_edge_blocks else filling.uncovered_blocks_condition
    if isinstance(segment, PartialRowsSelect):
        return filling.partial_rows_select
    if isinstance(segment, OptionalPredicate):
        sides = (fill_partial_answer_segments(side, filling) for side in (segment.null_test, segment.predicate))
        return OptionalPredicate(segment.parameter, *sides)
    return segment


def _print_each_segment(
    segments: Segments, values: Mapping[str, object] | None, blocks: BlockNumbersByFilter
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


def _find_block_filters(segments: Segments) -> Iterator[BlockFilter]:
    for segment in segments:
        if isinstance(segment, BlockFilter):
            yield segment
        elif isinstance(segment, OptionalPredicate):
            yield from _find_block_filters(segment.null_test)
            yield from _find_block_filters(segment.predicate)
