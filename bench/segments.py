"""`python -m bench.segments DATA SCRATCH`: query times over several read-only files, as ratios to those over one file.

DATA is the data folder of a stopped service. Its events are copied into segments, which are DuckDB files. The segments
stay in SCRATCH for the next run. The one file and the segments are queried round-robin by one thread of DuckDB. Its
processor time is measured, so that other load on the machine hardly changes the ratios. No n-gram index is used.
docs/decisions/0087-engine-process.md has the results.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import duckdb
import msgspec

from bench.events import STREAM
from bench.questions import QUESTIONS, Question
from bench.service import ENDPOINTS
from cordwood.app.checks import read_and_check_definitions
from cordwood.catalog.catalog import CatalogSources
from cordwood.engines.duckdb.query.query_runner import _render_cells_sql
from cordwood.engines.duckdb.storage.manifest import read_shapes
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.storage.tables import EVENT_COLUMNS, StreamTableStatements, quote_identifier
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import EventShape
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_sandbox_query, compile_saved_query, parse_and_check_endpoint
from cordwood.sql.plan import EventRange, print_segments

# The segments of each layout, oldest first. For each segment: its number of row groups, and how many row groups are
# sorted by project together as one run. The last segment has all remaining row groups.
SEGMENTS_BY_LAYOUT: Mapping[str, Sequence[tuple[int, int]]] = {
    "one": [(10**6, 10**6)],
    "three": [(90, 10), (4, 1), (10**6, 1)],
    "five": [(90, 10), (4, 1), (2, 1), (1, 1), (10**6, 1)],
    "twenty": [(5, 5)] * 19 + [(10**6, 5)],
}
ROUNDS = 7
_PAGE_ROWS = 100
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET late_materialization_max_rows = 0",
    "SET variant_minimum_shredding_size = 1024",
)
_FLUSHED_TABLE = StreamTableStatements(STREAM).table
# Matches the sub-query with which a compiled statement scans the stream: the paths that it reads, and its condition.
_SCAN_PATTERN = re.compile(
    rf'\(\((SELECT (?:(?!SELECT).)*? FROM {re.escape(_FLUSHED_TABLE)})( WHERE .*?)?\)\) AS "t"', re.DOTALL
)
# The alias of the row id in compiled statements.
_ROW_ID_ALIAS = '"place of the event"'
# The row ids of segment n begin at n times this number. No segment has as many rows.
_ROW_ID_RANGE = 1 << 40
_COLUMN_LIST = ", ".join(map(quote_identifier, EVENT_COLUMNS))


class Segment(msgspec.Struct, frozen=True):
    """An attached segment: its table, and the time of its newest event."""

    table: str
    newest_us: int


class CompiledQuestion(msgspec.Struct, frozen=True):
    """A question as the SQL and the parameter values that the service sends to the engine."""

    name: str
    sql: str
    values: Mapping[str, object]
    # Whether the answer is a sorted page of rows, for which the newest segments alone may suffice.
    is_page: bool


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("data", type=Path, help="data folder of a stopped service")
    cli.add_argument("scratch", type=Path, help="folder that keeps the segments")
    cli.add_argument(
        "--layouts", nargs="*", default=["three", "five"], choices=SEGMENTS_BY_LAYOUT, help="layouts to measure"
    )
    options = cli.parse_args()
    with duckdb.connect(config={"threads": 1, "memory_limit": "1GB"}) as connection:
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.execute(f"ATTACH '{options.data / 'events.duckdb'}' AS store (READ_ONLY)")
        layouts = {name: _open_segments(connection, options.scratch, name) for name in options.layouts}
        for question in QUESTIONS:
            _compare_layouts(connection, _compile(connection, question), layouts)


def _open_segments(connection: duckdb.DuckDBPyConnection, scratch: Path, layout: str) -> list[Segment]:
    """Attach the segments of a layout. If they are missing, write them first."""
    folder = scratch / layout
    if not folder.exists():
        folder.mkdir(parents=True)
        _write_segments(connection, folder, SEGMENTS_BY_LAYOUT[layout])
    return [_attach_segment(connection, file, f"{layout}_{file.stem}") for file in sorted(folder.glob("*.duckdb"))]


def _attach_segment(connection: duckdb.DuckDBPyConnection, file: Path, name: str) -> Segment:
    connection.execute(f"ATTACH '{file}' AS {name} (READ_ONLY)")
    ((newest_us,),) = connection.execute(f"SELECT epoch_us(max(timestamp)) FROM {name}.events").fetchall()
    return Segment(f"{name}.events", newest_us)


def _write_segments(connection: duckdb.DuckDBPyConnection, folder: Path, layout: Sequence[tuple[int, int]]) -> None:
    """Write the events into the segments of a layout, divided by time into row groups and runs."""
    numbered = f"SELECT epoch_us(timestamp) AS t, row_number() OVER (ORDER BY timestamp) - 1 AS n FROM {_FLUSHED_TABLE}"
    rows = connection.execute(f"SELECT t FROM ({numbered}) WHERE n % {ROW_GROUP_ROWS} = 0 ORDER BY n").fetchall()
    starts = [row[0] for row in rows]
    # A time after the last row group, which is later than any event.
    starts.append(1 << 60)
    ends = [min(end, len(starts) - 1) for end in accumulate(groups for groups, _ in layout)]
    for number, (first, end) in enumerate(pairwise([0, *ends])):
        run_groups = layout[number][1]
        runs = [(starts[at], starts[min(at + run_groups, end)]) for at in range(first, end, run_groups)]
        _write_segment(connection, folder / f"{number:03}.duckdb", runs)


def _write_segment(connection: duckdb.DuckDBPyConnection, file: Path, runs: Sequence[tuple[int, int]]) -> None:
    """Write one segment. Each of its runs has the events between two times, sorted by project."""
    connection.execute(f"ATTACH '{file}' AS segment (ROW_GROUP_SIZE {ROW_GROUP_ROWS}, BLOCK_SIZE 65536)")
    columns = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in EVENT_COLUMNS.items())
    columns = columns.replace('"event_message" VARCHAR', '"event_message" VARCHAR USING COMPRESSION zstd')
    connection.execute(f"CREATE TABLE segment.events ({columns})")
    for since, until in runs:
        connection.execute(
            f"INSERT INTO segment.events SELECT {_COLUMN_LIST} FROM {_FLUSHED_TABLE} WHERE epoch_us(timestamp) >= {since}"
            f" AND epoch_us(timestamp) < {until} ORDER BY project NULLS FIRST, timestamp"
        )
    connection.execute("CHECKPOINT segment")
    connection.execute("DETACH segment")


def _compile(connection: duckdb.DuckDBPyConnection, question: Question) -> CompiledQuestion:
    """Compile a question to the SQL that the service runs."""
    contents = read_and_check_definitions(CatalogSources(endpoints_folder=ENDPOINTS))
    program = parse_and_check_endpoint(next(path for path in contents.endpoints if path.name == question.endpoint))
    stream_shapes = {name: EventShape(kinds, version=1) for name, kinds in read_shapes(connection.cursor()).items()}
    parameters = dict(question.parameters)
    sandbox = parameters.pop("sql", None)
    if sandbox is None:
        statement = compile_saved_query(program, DuckDBTarget(), stream_shapes)
    else:
        statement = compile_sandbox_query(program, sandbox, DuckDBTarget(), stream_shapes)
    values = bind_parameters(statement, parameters, 0, lambda _: None).values
    variant = statement.plan.find_variant_or_fallback(EventRange.FLUSHED) or statement.plan.variants[0]
    (parsed,) = connection.extract_statements(f"FROM ({print_segments(variant.segments, values)}) LIMIT 0")
    connection.execute(parsed, {name: values[name] for name in parsed.named_parameters})
    types = tuple(column[1] for column in connection.description or [])
    sql = print_segments(_render_cells_sql(variant.segments, types, ""), values)
    return CompiledQuestion(question.name, sql, values, is_page=statement.row_limit == _PAGE_ROWS and "ORDER BY" in sql)


def _rewrite_over_segments(sql: str, segments: Sequence[Segment]) -> str:
    """Rewrite each scan of the stream as a UNION ALL over the segments, with row ids that differ between segments."""

    def union(scan: re.Match[str]) -> str:
        branches = []
        for number, segment in enumerate(segments):
            first, last = number * _ROW_ID_RANGE, (number + 1) * _ROW_ID_RANGE - 1
            select = scan[1].replace(_FLUSHED_TABLE, segment.table)
            select = select.replace(f"rowid AS {_ROW_ID_ALIAS}", f"rowid + {first} AS {_ROW_ID_ALIAS}")
            condition = (scan[2] or "").replace(
                f'(SELECT {_ROW_ID_ALIAS} FROM "newest events")',
                f'(SELECT {_ROW_ID_ALIAS} - {first} FROM "newest events" WHERE {_ROW_ID_ALIAS} BETWEEN {first} AND {last})',
            )
            branches.append(select + condition)
        return f'(({" UNION ALL ".join(branches)})) AS "t"'

    return _SCAN_PATTERN.sub(union, sql)


def _prepare_query(
    connection: duckdb.DuckDBPyConnection, sql: str, question: CompiledQuestion
) -> Callable[[], list[tuple[object, ...]]]:
    """Parse the SQL. Return a function that runs it with the question's parameter values."""
    (parsed,) = connection.extract_statements(sql)
    values = {name: question.values[name] for name in parsed.named_parameters}
    return lambda: connection.execute(parsed, values).fetchall()


def _prepare_newest_first(
    connection: duckdb.DuckDBPyConnection, question: CompiledQuestion, segments: Sequence[Segment]
) -> Callable[[], list[tuple[object, ...]]]:
    """Return a function that queries the segments one by one, newest first, until the page is full."""
    newest = sorted(segments, key=lambda segment: segment.newest_us, reverse=True)
    queries = [
        _prepare_query(connection, _rewrite_over_segments(question.sql, [segment]), question) for segment in newest
    ]

    def run() -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for query in queries:
            rows += query()
            if len(rows) >= _PAGE_ROWS:
                break
        return rows[:_PAGE_ROWS]

    return run


def _compare_layouts(
    connection: duckdb.DuckDBPyConnection, question: CompiledQuestion, layouts: Mapping[str, Sequence[Segment]]
) -> None:
    """Check that all layouts give the same answer. Print their times as multiples of the times over one file."""
    queries = {"file": _prepare_query(connection, question.sql, question)}
    for name, segments in layouts.items():
        queries[name] = _prepare_query(connection, _rewrite_over_segments(question.sql, segments), question)
        if question.is_page:
            queries[f"{name}, newest first"] = _prepare_newest_first(connection, question, segments)
    expected = sorted(map(repr, queries["file"]()))
    for name, query in queries.items():
        assert sorted(map(repr, query())) == expected, f"{question.name}: {name} gives another answer"
    times: dict[str, list[float]] = {name: [] for name in queries}
    for _ in range(ROUNDS):
        for name, query in queries.items():
            times[name].append(_processor_ms(query))
    file = times.pop("file")
    print(f"{question.name}: {statistics.median(file):.1f} ms over one file")
    for name, each in times.items():
        ratio = statistics.median(layout_ms / file_ms for layout_ms, file_ms in zip(each, file, strict=True))
        print(f"    {name:24s} {ratio:.2f}", flush=True)


def _processor_ms(action: Callable[[], object]) -> float:
    started_at = time.process_time()
    action()
    return (time.process_time() - started_at) * 1000


if __name__ == "__main__":
    main()
