"""The physical plan of a statement: variants that an engine may run, as printed segments and typed placeholders.

The variants are fixed when the statement is compiled. For each call, `Plan.choose` selects a variant by the state of
the store, and `print_segments` writes its SQL: the only place where a statement's SQL is assembled.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec


class OptionalPredicate(msgspec.Struct, frozen=True, tag=True):
    """A condition `(test OR predicate)` that is true if the parameter is NULL.

    `test` checks whether the parameter is NULL. A call needs only one of the two; an engine would plan both.
    """

    parameter: str
    test: "Segments"
    predicate: "Segments"


class BlockFilter(msgspec.Struct, frozen=True, tag=True):
    """A condition that restricts a scan to blocks of a stream's flushed events whose messages may contain all n-grams.

    The message must also contain the values of the parameters `texts` and match those of `patterns`.
    """

    stream: str
    ngrams: tuple[str, ...]
    texts: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class UncoveredBlocks(msgspec.Struct, frozen=True, tag=True):
    """The flushed events of a stream that a scan reads because no partial answer counts them.

    With `at_edges`, those of blocks that are partly counted; else whole blocks.
    """

    stream: str
    at_edges: bool = False


class PartialRows(msgspec.Struct, frozen=True, tag=True):
    """A SELECT of the rows of partial answers; `columns` is the number of their columns."""

    columns: int


Segment = str | OptionalPredicate | BlockFilter | UncoveredBlocks | PartialRows
Segments = tuple[Segment, ...]

# The numbers of the blocks to read, by filter; None means all blocks.
Blocks = Mapping[BlockFilter, Sequence[int] | None]
_ALL_BLOCKS_CONDITION: Final[Blocks] = {}


class EventRange(StrEnum):
    """The part of a stream's events that a variant reads."""

    ALL = "all"
    FLUSHED = "flushed"
    RECENT = "recent"
    ARRIVED = "arrived"


class Variant(msgspec.Struct, frozen=True):
    """One way to run a statement; an optimistic variant fails if a text may need redaction."""

    segments: Segments
    reads: EventRange = EventRange.ALL
    is_optimistic: bool = False

    def block_filters(self) -> tuple[BlockFilter, ...]:
        """Return the block filters of the variant's scans, without duplicates."""
        return tuple(dict.fromkeys(_find_block_filters(self.segments)))


class TimeBound(StrEnum):
    """The comparison of an event's time with a bound."""

    AFTER = ">"
    AT_OR_AFTER = ">="
    BEFORE = "<"
    AT_OR_BEFORE = "<="


class Merge(StrEnum):
    """The aggregate that merges partial results of a column; `KEY` for a column that the rows are grouped by."""

    KEY = "key"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ALL = "bool_and"
    ANY = "bool_or"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"


class PartialPlan(msgspec.Struct, frozen=True):
    """How an aggregation over one stream is put together from partial answers of blocks that do not change.

    `blocks` aggregates each hour of each block by itself, without the bounds of time, to the columns of `merges`, the
    hour and the block's number. `bounds` selects the values that the events' times are compared with, in microseconds;
    `comparisons` has the comparison for each. The variants aggregate the other events and merge the partial rows.
    """

    stream: str
    merges: tuple[Merge, ...]
    comparisons: tuple[TimeBound, ...]
    bounds: Segments
    blocks: Segments
    variants: tuple[Variant, ...]


class Plan(msgspec.Struct, frozen=True):
    """The variants of a statement. The first one reads all events and redacts, so it is always valid."""

    variants: tuple[Variant, ...]
    partial: PartialPlan | None = None

    @property
    def sql(self) -> str:
        """The SQL of the first variant, with its optional predicates in full, for display."""
        return print_segments(self.variants[0].segments)

    def variant(self, reads: EventRange, *, optimistic: bool = False) -> Variant | None:
        """Return the variant with exactly these properties; None if the plan has none."""
        matches = (
            variant for variant in self.variants if variant.reads is reads and variant.is_optimistic is optimistic
        )
        return next(matches, None)

    def choose(self, reads: EventRange, *, optimistic: bool = False) -> Variant | None:
        """Return the variant for a store that has only the events `reads`, or else the one that reads all events.

        Return None if the plan has no optimistic variant, or no variant that reads only recent events, as requested.
        """
        variant = self.variant(reads, optimistic=optimistic)
        if variant is None and reads is EventRange.FLUSHED:
            return self.variant(EventRange.ALL, optimistic=optimistic)
        return variant


def fixed_plan(sql: str) -> Plan:
    """Return the plan of a text that is always run unchanged."""
    return Plan((Variant((sql,)),))


def print_segments(
    segments: Segments, values: Mapping[str, object] | None = None, blocks: Blocks = _ALL_BLOCKS_CONDITION
) -> str:
    """Write the SQL of segments; without `values`, optional predicates are written in full: `(test OR predicate)`."""
    return "".join(_print_parts(segments, values, blocks))


class BlockSql(msgspec.Struct, frozen=True):
    """The SQL for a call's blocks: the conditions of the events to read, and the SELECT of the partial rows."""

    blocks: str
    edges: str = "false"
    rows: str = ""


def fill_segments(segments: Segments, filling: BlockSql) -> Segments:
    """Replace the blocks to read and the partial rows by SQL."""
    return tuple(_fill_segment(segment, filling) for segment in segments)


def _fill_segment(segment: Segment, filling: BlockSql) -> Segment:
    if isinstance(segment, UncoveredBlocks):
        return filling.edges if segment.at_edges else filling.blocks
    if isinstance(segment, PartialRows):
        return filling.rows
    if isinstance(segment, OptionalPredicate):
        sides = (fill_segments(side, filling) for side in (segment.test, segment.predicate))
        return OptionalPredicate(segment.parameter, *sides)
    return segment


def _print_parts(segments: Segments, values: Mapping[str, object] | None, blocks: Blocks) -> Iterator[str]:
    for segment in segments:
        if isinstance(segment, str):
            yield segment
        elif isinstance(segment, BlockFilter):
            yield _block_condition(blocks.get(segment))
        elif isinstance(segment, UncoveredBlocks):
            yield "false" if segment.at_edges else "true"
        elif isinstance(segment, PartialRows):
            yield f"SELECT {', '.join(['NULL'] * segment.columns)} WHERE false"
        else:
            yield "("
            if values is None or values[segment.parameter] is None:
                yield from _print_parts(segment.test, values, blocks)
            if values is None:
                yield " OR "
            if values is None or values[segment.parameter] is not None:
                yield from _print_parts(segment.predicate, values, blocks)
            yield ")"


def _block_condition(blocks: Sequence[int] | None) -> str:
    return "true" if blocks is None else f"block IN ({', '.join(f'{block:d}' for block in blocks)})"


def _find_block_filters(segments: Segments) -> Iterator[BlockFilter]:
    for segment in segments:
        if isinstance(segment, BlockFilter):
            yield segment
        elif isinstance(segment, OptionalPredicate):
            yield from _find_block_filters(segment.test)
            yield from _find_block_filters(segment.predicate)
