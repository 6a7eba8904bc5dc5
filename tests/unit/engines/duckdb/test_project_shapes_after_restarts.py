"""After a restart or a crash, the shapes of projects are restored from the file and the write-ahead log."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.model.event import EventPath as Steps
from tests.contract.engine_asking import NOW_US, stream
from tests.waiting import until_flushed

OpenEngine = Callable[..., DuckDBEngine]
TEXT = frozenset({ValueKind.TEXT})


def kinds_of_paths(*paths: Steps) -> ValueKindsByPath:
    return dict.fromkeys(paths, TEXT)


def make_batch(name: str, count: int = 1, **by_project: ValueKindsByPath) -> ReceivedEventBatch:
    events = [Event(f"{name}{number}", NOW_US, metadata="{}") for number in range(count)]
    return ReceivedEventBatch("s", events, NOW_US, {}, by_project)


@pytest.fixture
def open_engine(tmp_path: Path) -> Iterator[OpenEngine]:
    opened: list[DuckDBEngine] = []

    def open_engine(name: str = "data") -> DuckDBEngine:
        while opened:
            opened.pop().close()
        engine = DuckDBEngine(tmp_path / name, DuckDBTarget(), clock_us=lambda: NOW_US)
        engine.create_stream_tables([stream("s")])
        opened.append(engine)
        return engine

    yield open_engine
    while opened:
        opened.pop().close()


def known_paths(engine: DuckDBEngine, project: str) -> ValueKindsByPath:
    return (
        engine.project_shapes_by_stream()["s"]
        .shape_of_project(project, engine.shapes_by_stream()["s"])
        .value_kinds_by_path
    )


def test_project_shapes_survive_restarts(open_engine: OpenEngine) -> None:
    open_engine().append([make_batch("a", p=kinds_of_paths(("x",), ("y",)), q=kinds_of_paths(("y",)))])
    for number in range(4):
        engine = open_engine()
        assert known_paths(engine, "p") == kinds_of_paths(("x",), ("y",))
        assert ("y",) in known_paths(engine, "q")
        engine.append([make_batch(f"b{number}", q=kinds_of_paths((f"new{number}",)))])
    assert known_paths(open_engine(), "q") == kinds_of_paths(("y",), *((f"new{number}",) for number in range(4)))


def test_project_shapes_of_flushed_and_pending_events_survive_a_crash(open_engine: OpenEngine, tmp_path: Path) -> None:
    """Open a copy of a running engine's folder, whose files are those that a kill would leave."""
    engine = open_engine()
    engine.append([make_batch("a", ROW_GROUP_ROWS, p=kinds_of_paths(("sealed",)))])
    until_flushed(tmp_path / "data")
    engine.append([make_batch("b", p=kinds_of_paths(("waiting",)), q=kinds_of_paths(("sealed",)))])
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    engine = open_engine("killed")
    assert known_paths(engine, "p") == kinds_of_paths(("sealed",), ("waiting",))
    assert known_paths(engine, "q") == kinds_of_paths(("sealed",))
