"""`python -m bench.segments DATA SCRATCH`: the questions over read-only segments, as ratios to the one file.

DATA is the data folder of a service that has stopped, SCRATCH keeps the segments that are made of it. Both are asked in
turns by one thread of DuckDB, and its processor time is counted: other work on the machine hardly changes the ratios.
The n-gram index is left out on both sides. docs/decisions/0087-engine-process.md has what came of it.
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
from cordwood.app.compose import checked_contents
from cordwood.catalog.catalog import Sources
from cordwood.engines.duckdb.query.answers import _render_cells
from cordwood.engines.duckdb.storage.manifest import shapes
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.storage.tables import COLUMNS, StreamTables, quoted
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.shape import Shape
from cordwood.sql.bind import bind
from cordwood.sql.compile import compile_sandbox, compile_saved, read_endpoint
from cordwood.sql.plan import Reads, print_segments

# How many row groups each segment has, and how many of them are ordered by project together; the last takes the rest.
LAYOUTS: Mapping[str, Sequence[tuple[int, int]]] = {
    "one": [(10**6, 10**6)],
    "three": [(90, 10), (4, 1), (10**6, 1)],
    "five": [(90, 10), (4, 1), (2, 1), (1, 1), (10**6, 1)],
    "twenty": [(5, 5)] * 19 + [(10**6, 5)],
}
ROUNDS = 7
_PAGE = 100
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET late_materialization_max_rows = 0",
    "SET variant_minimum_shredding_size = 1024",
)
_SEALED = StreamTables(STREAM).table
# Where a compiled statement reads the stream: its paths, and which events.
_READ = re.compile(rf'\(\((SELECT (?:(?!SELECT).)*? FROM {re.escape(_SEALED)})( WHERE .*?)?\)\) AS "t"', re.DOTALL)
_PLACE = '"place of the event"'
# Beyond any row of a segment.
_NEXT = 1 << 40
_NAMES = ", ".join(map(quoted, COLUMNS))


class Segment(msgspec.Struct, frozen=True):
    """A file that is attached, and the time of its newest event."""

    table: str
    newest_us: int


class Asked(msgspec.Struct, frozen=True):
    """A question as the service sends it to the engine."""

    name: str
    sql: str
    values: Mapping[str, object]
    is_page: bool


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("data", type=Path)
    cli.add_argument("scratch", type=Path)
    cli.add_argument("--layouts", nargs="*", default=["three", "five"], choices=LAYOUTS)
    told = cli.parse_args()
    with duckdb.connect(config={"threads": 1, "memory_limit": "1GB"}) as connection:
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.execute(f"ATTACH '{told.data / 'events.duckdb'}' AS store (READ_ONLY)")
        layouts = {name: _segments(connection, told.scratch, name) for name in told.layouts}
        for question in QUESTIONS:
            _compare(connection, _compiled(connection, question), layouts)


def _segments(connection: duckdb.DuckDBPyConnection, scratch: Path, layout: str) -> list[Segment]:
    folder = scratch / layout
    if not folder.exists():
        folder.mkdir(parents=True)
        _write(connection, folder, LAYOUTS[layout])
    return [_attached(connection, file, f"{layout}_{file.stem}") for file in sorted(folder.glob("*.duckdb"))]


def _attached(connection: duckdb.DuckDBPyConnection, file: Path, name: str) -> Segment:
    connection.execute(f"ATTACH '{file}' AS {name} (READ_ONLY)")
    ((newest_us,),) = connection.execute(f"SELECT epoch_us(max(timestamp)) FROM {name}.events").fetchall()
    return Segment(f"{name}.events", newest_us)


def _write(connection: duckdb.DuckDBPyConnection, folder: Path, layout: Sequence[tuple[int, int]]) -> None:
    numbered = f"SELECT epoch_us(timestamp) AS t, row_number() OVER (ORDER BY timestamp) - 1 AS n FROM {_SEALED}"
    found = connection.execute(f"SELECT t FROM ({numbered}) WHERE n % {ROW_GROUP_ROWS} = 0 ORDER BY n").fetchall()
    starts = [row[0] for row in found]
    # Past the last group nothing is left out.
    starts.append(1 << 60)
    ends = [min(end, len(starts) - 1) for end in accumulate(groups for groups, _ in layout)]
    for number, (first, end) in enumerate(pairwise([0, *ends])):
        together = layout[number][1]
        slices = [(starts[at], starts[min(at + together, end)]) for at in range(first, end, together)]
        _write_one(connection, folder / f"{number:03}.duckdb", slices)


def _write_one(connection: duckdb.DuckDBPyConnection, file: Path, slices: Sequence[tuple[int, int]]) -> None:
    connection.execute(f"ATTACH '{file}' AS made (ROW_GROUP_SIZE {ROW_GROUP_ROWS}, BLOCK_SIZE 65536)")
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in COLUMNS.items())
    columns = columns.replace('"event_message" VARCHAR', '"event_message" VARCHAR USING COMPRESSION zstd')
    connection.execute(f"CREATE TABLE made.events ({columns})")
    for since, until in slices:
        connection.execute(
            f"INSERT INTO made.events SELECT {_NAMES} FROM {_SEALED} WHERE epoch_us(timestamp) >= {since}"
            f" AND epoch_us(timestamp) < {until} ORDER BY project NULLS FIRST, timestamp"
        )
    connection.execute("CHECKPOINT made")
    connection.execute("DETACH made")


def _compiled(connection: duckdb.DuckDBPyConnection, question: Question) -> Asked:
    contents = checked_contents(Sources(endpoints=ENDPOINTS))
    program = read_endpoint(next(one for one in contents.endpoints if one.name == question.endpoint))
    seen = {name: Shape(kinds, version=1) for name, kinds in shapes(connection.cursor()).items()}
    given = dict(question.parameters)
    sandbox = given.pop("sql", None)
    if sandbox is None:
        statement = compile_saved(program, DuckDBTarget(), seen)
    else:
        statement = compile_sandbox(program, sandbox, DuckDBTarget(), seen)
    values = bind(statement, given, 0, lambda _: None).values
    variant = statement.plan.choose(Reads.FLUSHED) or statement.plan.variants[0]
    (parsed,) = connection.extract_statements(f"FROM ({print_segments(variant.segments, values)}) LIMIT 0")
    connection.execute(parsed, {name: values[name] for name in parsed.named_parameters})
    types = tuple(column[1] for column in connection.description or [])
    sql = print_segments(_render_cells(variant.segments, types, ""), values)
    return Asked(question.name, sql, values, is_page=statement.row_limit == _PAGE and "ORDER BY" in sql)


def _over(sql: str, segments: Sequence[Segment]) -> str:
    """The statement over these segments: each branch reads its own paths, and tells rows apart from those of others."""

    def branches(found: re.Match[str]) -> str:
        texts = []
        for number, segment in enumerate(segments):
            base = number * _NEXT
            texts.append(
                found[1].replace(_SEALED, segment.table).replace(f"rowid AS {_PLACE}", f"rowid + {base} AS {_PLACE}")
            )
            texts[-1] += (found[2] or "").replace(
                f'(SELECT {_PLACE} FROM "newest events")',
                f'(SELECT {_PLACE} - {base} FROM "newest events" WHERE {_PLACE} BETWEEN {base} AND {base + _NEXT - 1})',
            )
        return f'(({" UNION ALL ".join(texts)})) AS "t"'

    return _READ.sub(branches, sql)


def _asker(connection: duckdb.DuckDBPyConnection, sql: str, asked: Asked) -> Callable[[], list[tuple[object, ...]]]:
    (parsed,) = connection.extract_statements(sql)
    values = {name: asked.values[name] for name in parsed.named_parameters}
    return lambda: connection.execute(parsed, values).fetchall()


def _newest_first(
    connection: duckdb.DuckDBPyConnection, asked: Asked, segments: Sequence[Segment]
) -> Callable[[], list[tuple[object, ...]]]:
    """One segment after the other from the newest on, until the page is full."""
    newest = sorted(segments, key=lambda one: one.newest_us, reverse=True)
    askers = [_asker(connection, _over(asked.sql, [segment]), asked) for segment in newest]

    def ask() -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for asker in askers:
            rows += asker()
            if len(rows) >= _PAGE:
                break
        return rows[:_PAGE]

    return ask


def _compare(connection: duckdb.DuckDBPyConnection, asked: Asked, layouts: Mapping[str, Sequence[Segment]]) -> None:
    ways = {"file": _asker(connection, asked.sql, asked)}
    for name, segments in layouts.items():
        ways[name] = _asker(connection, _over(asked.sql, segments), asked)
        if asked.is_page:
            ways[f"{name}, newest first"] = _newest_first(connection, asked, segments)
    right = sorted(map(repr, ways["file"]()))
    for name, way in ways.items():
        assert sorted(map(repr, way())) == right, f"{asked.name}: {name} answers otherwise"
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(_processor_ms(way))
    file = times.pop("file")
    print(f"{asked.name}: {statistics.median(file):.1f} ms on the file")
    for name, each in times.items():
        ratio = statistics.median(one / other for one, other in zip(each, file, strict=True))
        print(f"    {name:24s} {ratio:.2f}", flush=True)


def _processor_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000


if __name__ == "__main__":
    main()
