"""Answer a repeated aggregation from partial answers of compacted blocks; aggregate only the other events.

All statements run in the transaction of the query, so that they see blocks and events of one moment: an event is
counted once, however blocks are compacted or deleted meanwhile. A partial answer is that of one hour of one block. It
is used if its hour is wholly within the query's time bounds; the events of the block outside of such hours are read.
Missing partial answers are computed in one pass over their blocks, which replaces the pass that the query would have
made over the same events.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from operator import ge, gt, le, lt
from typing import Any, Final, Protocol

import duckdb
import msgspec

import cordwood
from cordwood.engines.duckdb.query.partial_aggregation import SLICE_US
from cordwood.engines.duckdb.query.partial_answers import Entry, PartialAnswers, Row, decode_rows, merge_rows
from cordwood.engines.duckdb.storage.blocks import UNKNOWN_BLOCK, RegisteredBlock, StreamBlocks
from cordwood.sql.nodes import NOW
from cordwood.sql.plan import (
    BlockSql,
    EventRange,
    PartialPlan,
    Segments,
    TimeBound,
    Variant,
    fill_segments,
    print_segments,
)
from cordwood.sql.stages import Question

# The maximum number of rows of a question's partial answers; merging more would take as long as reading the events.
MAX_ROWS: Final = 20_000
# If fewer blocks than this lack a partial answer, their events are read instead of computing one.
_MIN_COMPUTED_BLOCKS: Final = 4
# By type: the SQL that converts a value for Python, and the SQL that converts it back. Other types are unsuitable.
_TO_CELL: Final = {
    "BIGINT": "{0}",
    "INTEGER": "{0}",
    "VARCHAR": "{0}",
    "BOOLEAN": "{0}",
    "DATE": "({0} - '1970-01-01'::DATE)",
    "TIMESTAMP": "epoch_us({0})",
    "TIMESTAMP WITH TIME ZONE": "epoch_us({0})",
}
_FROM_CELL: Final = {
    "BIGINT": "unnest({0}::BIGINT[])",
    "INTEGER": "unnest({0}::BIGINT[])::INTEGER",
    "VARCHAR": "unnest({0}::VARCHAR[])",
    "BOOLEAN": "unnest({0}::BOOLEAN[])",
    "DATE": "'1970-01-01'::DATE + unnest({0}::BIGINT[])::INTEGER",
    "TIMESTAMP": "make_timestamp(unnest({0}::BIGINT[]))",
    "TIMESTAMP WITH TIME ZONE": "make_timestamptz(unnest({0}::BIGINT[]))",
}

_COMPARE: Final[Mapping[TimeBound, Callable[[int, int], bool]]] = {
    TimeBound.AFTER: gt,
    TimeBound.AT_OR_AFTER: ge,
    TimeBound.BEFORE: lt,
    TimeBound.AT_OR_BEFORE: le,
}
_VERSIONS: Final = (cordwood.__version__, duckdb.__version__)


class Statements(Protocol):
    """The interface that parses SQL into a statement of the engine."""

    def checked(self, cursor: duckdb.DuckDBPyConnection, sql: str, streams: tuple[str, ...]) -> duckdb.Statement:
        """Parse SQL and apply the isolation check; raise IsolationBroken if it fails."""

    def unchecked(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
        """Parse SQL that differs from checked SQL only by block numbers and casts."""


class Reused(msgspec.Struct, frozen=True):
    """The variant of the plan that uses partial answers, and their values, which are bound to its slots."""

    variant: Variant
    values: Mapping[str, object]


class PartialReuse:
    """Finds, computes and merges the partial answers for one call of a question."""

    def __init__(self, answers: PartialAnswers, statements: Statements, question: Question, plan: PartialPlan) -> None:
        self._answers = answers
        self._statements = statements
        self._streams = question.statement.streams
        self._values = question.values
        self._plan = plan
        # Known once the statement has been parsed.
        self._key: str | None = None

    def prepare(self, cursor: duckdb.DuckDBPyConnection, reads: EventRange) -> Reused | None:
        """Compute missing partial answers; return the variant that uses them, or None if there is nothing to reuse.

        Begins the transaction in which the answer must be read, unless one is under way because of a memtable.
        """
        key = self._key = self._find_key(cursor)
        call = key + _digest([(name, str(value)) for name, value in self._values.items() if name != NOW])
        if not self._answers.may_use(key, call):
            return None
        if reads is EventRange.FLUSHED:
            cursor.execute("BEGIN")
        blocks = self._answers.block_reader.read(cursor, self._plan.stream)
        split = self._split_blocks(blocks, self._read_bounds(cursor) if blocks.registered else None)
        if not split.covered:
            self._answers.pause(call)
            return None
        found = self._complete(cursor, key, split, {block.content for block in blocks.registered})
        if found is None:
            return None
        entry, rows_by_content = found
        merged = self._merge(key, entry, rows_by_content, split)
        variant = next(variant for variant in self._plan.variants if variant.reads is reads)
        return self._fill(variant, split, merged, entry.types)

    def give_up(self) -> None:
        """Record that the answer from partial answers failed, so that they are not used for a while."""
        if self._key is not None:
            self._answers.give_up(self._key)

    def _find_key(self, cursor: duckdb.DuckDBPyConnection) -> str:
        """Return a digest of the SQL that aggregates a block and of its parameter values."""
        text = print_segments(self._plan.blocks, self._values)
        parsed = self._statements.checked(cursor, text, self._streams)
        values = [(name, repr(self._values[name])) for name in sorted(parsed.named_parameters)]
        return _digest((_VERSIONS, text, values))

    def _read_bounds(self, cursor: duckdb.DuckDBPyConnection) -> list[int] | None:
        """Return the values of the time bounds; None if one is NULL, so that no event is within the bounds."""
        if not self._plan.bounds:
            return []
        parsed = self._statements.checked(cursor, print_segments(self._plan.bounds, self._values), self._streams)
        ((*bounds,),) = cursor.execute(parsed, self._parameter_values_of(parsed)).fetchall()
        return None if None in bounds else bounds

    def _split_blocks(self, blocks: StreamBlocks, bounds: Sequence[int] | None) -> "_Split":
        """Divide the blocks: those with whole hours within the bounds, and those of which all events are read."""
        if bounds is None:
            return _Split()
        split = _Split(*self._whole_hours(bounds))
        left_out = set()
        for block in blocks.registered:
            if self._is_outside(block, bounds):
                left_out.add(block.block)
            elif split.has_hours_of(block):
                left_out.add(block.block)
                split.covered.append(block)
        split.uncovered += [UNKNOWN_BLOCK, *(number for number in blocks.numbers if number not in left_out)]
        return split

    def _whole_hours(self, bounds: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the start and the end of the hours that are wholly within the bounds; None for no limit."""
        lows, highs = [], []
        for comparison, bound in zip(self._plan.comparisons, bounds, strict=True):
            if comparison is TimeBound.AT_OR_AFTER:
                lows.append(-(-bound // SLICE_US) * SLICE_US)
            elif comparison is TimeBound.AFTER:
                lows.append((bound // SLICE_US + 1) * SLICE_US)
            elif comparison is TimeBound.BEFORE:
                highs.append(bound // SLICE_US * SLICE_US)
            else:
                highs.append((bound + 1) // SLICE_US * SLICE_US)
        return max(lows, default=None), min(highs, default=None)

    def _is_outside(self, block: RegisteredBlock, bounds: Sequence[int]) -> bool:
        return any(
            not _COMPARE[comparison](block.oldest_us, bound) and not _COMPARE[comparison](block.newest_us, bound)
            for comparison, bound in zip(self._plan.comparisons, bounds, strict=True)
        )

    def _complete(
        self, cursor: duckdb.DuckDBPyConnection, key: str, split: "_Split", contents: AbstractSet[str]
    ) -> tuple[Entry, Mapping[str, bytes]] | None:
        """Return the entry and the rows of all covered blocks, computing missing ones; None if that is not possible.

        If only a few blocks lack rows, their events are read by the query, which costs less than another statement.
        """
        entry = self._answers.find(key, contents)
        # Read the attribute once, because concurrent calls replace the mapping.
        found = {} if entry is None else entry.blocks
        lacking = [block for block in split.covered if block.content not in found]
        if entry is not None and len(lacking) < min(_MIN_COMPUTED_BLOCKS, len(split.covered)):
            split.read_whole(lacking)
            self._answers.note_use(key, entry)
            return entry, found
        computed = self._compute(cursor, lacking)
        if computed is None:
            self._answers.reject(key)
            return None
        entry = self._answers.add(key, *computed)
        found = entry.blocks
        return (entry, found) if all(block.content in found for block in split.covered) else None

    def _compute(
        self, cursor: duckdb.DuckDBPyConnection, blocks: Sequence[RegisteredBlock]
    ) -> tuple[Sequence[str], dict[str, list[Row]]] | None:
        """Compute the rows of each block; return the column types and the rows, or None if they cannot be stored for reuse."""
        segments = fill_segments(self._plan.blocks, BlockSql(_in_blocks(block.block for block in blocks)))
        description = self._run(cursor, ("FROM (", *segments, ") LIMIT 0")).description or []
        types = [str(column[1]) for column in description[:-2]]
        if not all(type_ in _TO_CELL for type_ in types):
            return None
        names = [f"c{index}" for index, _ in enumerate(description)]
        cells = [_TO_CELL[type_].format(name) for type_, name in zip(types, names, strict=False)]
        head = f"SELECT {', '.join([names[-1], names[-2], *cells])} FROM ("  # noqa: S608 - names of our own
        tail = f") AS answer({', '.join(names)}) LIMIT {MAX_ROWS + 1}"
        rows = self._run(cursor, (head, *segments, tail)).fetchall()
        if len(rows) > MAX_ROWS:
            return None
        contents = {block.block: block.content for block in blocks}
        by_content: dict[str, list[Row]] = {content: [] for content in contents.values()}
        for number, *row in rows:
            by_content[contents[number]].append(tuple(row))
        return types, by_content

    def _run(self, cursor: duckdb.DuckDBPyConnection, segments: Segments) -> duckdb.DuckDBPyConnection:
        parsed = self._statements.unchecked(cursor, print_segments(segments, self._values))
        return cursor.execute(parsed, self._parameter_values_of(parsed))

    def _parameter_values_of(self, parsed: duckdb.Statement) -> dict[str, object]:
        return {name: self._values[name] for name in parsed.named_parameters}

    def _merge(self, key: str, entry: Entry, rows_by_content: Mapping[str, bytes], split: "_Split") -> list[Row]:
        """Merge the rows of the whole hours, or return the cached result for the same blocks and hours."""
        contents = tuple(block.content for block in split.covered)
        parts = (contents, split.low_us, split.high_us)
        merged_parts, merged = entry.merged
        if merged_parts != parts:
            decoded = (row for content in contents for row in decode_rows(rows_by_content[content]))
            merged = merge_rows([tuple(cells) for hour, *cells in decoded if split.has_hour(hour)], self._plan.merges)
            self._answers.keep_merged(key, entry, parts, merged)
        return merged

    def _fill(self, variant: Variant, split: "_Split", rows: Sequence[Row], types: Sequence[str]) -> Reused:
        prefix = "partial_"
        while any(name.lower().startswith(prefix) for name in self._values):
            prefix += "_"
        names = [f"{prefix}{index}" for index, _ in enumerate(types)]
        columns = [_FROM_CELL[type_].format(f"${name}") for type_, name in zip(types, names, strict=True)]
        filling = BlockSql(_in_blocks(split.uncovered), split.edges_sql(), f"SELECT {', '.join(columns)}")
        values = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        segments = fill_segments(variant.segments, filling)
        return Reused(msgspec.structs.replace(variant, segments=segments), values)


class _Split(msgspec.Struct):
    """The division of the blocks: partial answers count the `covered` ones for the hours from `low_us` to `high_us`."""

    low_us: int | None = None
    high_us: int | None = None
    covered: list[RegisteredBlock] = msgspec.field(default_factory=list)
    # The numbers of the blocks of which all events are read.
    uncovered: list[int] = msgspec.field(default_factory=list)

    def has_hours_of(self, block: RegisteredBlock) -> bool:
        """Return whether the block may have events in the hours that partial answers count."""
        return not self._is_before(block.newest_us) and not self._is_after(block.oldest_us)

    def read_whole(self, blocks: Sequence[RegisteredBlock]) -> None:
        """Move these blocks from the covered ones to those of which all events are read."""
        if blocks:
            numbers = {block.block for block in blocks}
            self.covered = [block for block in self.covered if block.block not in numbers]
            self.uncovered += sorted(numbers)

    def has_hour(self, hour: Any) -> bool:
        return not self._is_before(hour * SLICE_US) and not self._is_after(hour * SLICE_US)

    def edges_sql(self) -> str:
        """Return the condition of the events outside of the hours, in blocks that have events in them."""
        edges = [
            block.block for block in self.covered if self._is_before(block.oldest_us) or self._is_after(block.newest_us)
        ]
        beyond = [f"timestamp < make_timestamptz({self.low_us:d}::BIGINT)"] if self.low_us is not None else []
        beyond += [f"timestamp >= make_timestamptz({self.high_us:d}::BIGINT)"] if self.high_us is not None else []
        return f"{_in_blocks(edges)} AND ({' OR '.join(beyond)})" if edges else "false"

    def _is_before(self, time_us: int) -> bool:
        return self.low_us is not None and time_us < self.low_us

    def _is_after(self, time_us: int) -> bool:
        return self.high_us is not None and time_us >= self.high_us


def _digest(value: object) -> str:
    return sha256(msgspec.msgpack.encode(value)).hexdigest()


def _in_blocks(numbers: Iterable[int]) -> str:
    return f"block IN ({', '.join(f'{number:d}' for number in numbers)})"
