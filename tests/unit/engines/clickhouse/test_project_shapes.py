"""The shapes of projects are stored on the server, where other processes read them, and they survive a restart."""

from pathlib import Path

import msgspec
import pytest

from cordwood.engines.clickhouse.buffered_appender import PendingBatchQueue
from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.errors import DataFolderUnusable
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from tests.contract.engine_asking import NOW_US, stream
from tests.unreadable_folders import make_unreadable

TEXT = frozenset({ValueKind.TEXT})


def make_batch(name: str, *steps: str, project: str = "p") -> ReceivedEventBatch:
    return ReceivedEventBatch("s", [Event(name, NOW_US, metadata="{}")], NOW_US, {}, {project: {steps: TEXT}})


def known_paths(engine: ClickHouseEngine, project: str) -> ValueKindsByPath:
    return (
        engine.project_shapes_by_stream()["s"]
        .shape_of_project(project, engine.shapes_by_stream()["s"])
        .value_kinds_by_path
    )


def test_a_later_process_reads_the_shapes(engine: ClickHouseEngine, address: str) -> None:
    engine.create_stream_tables([stream("s")])
    engine.append([make_batch("a", "metadata", "x")])
    engine.append([make_batch("b", "metadata", "x"), make_batch("c", "metadata", "y", project="q")])
    later = ClickHouseEngine(address, ClickHouseOptions())
    later.create_stream_tables([stream("s")])
    later.append([])
    try:
        assert known_paths(later, "p") == {("metadata", "x"): TEXT}
        assert known_paths(later, "q") == {("metadata", "y"): TEXT}
    finally:
        later.close()


def test_pending_batches_keep_the_shapes_of_their_projects(tmp_path: Path) -> None:
    pending = PendingBatchQueue(tmp_path, 10**6)
    sent = make_batch("a", "metadata", "x")
    pending.add([sent])
    received: list[ReceivedEventBatch] = []
    pending.drain(received.extend)
    assert msgspec.structs.asdict(received[0])["by_project"] == sent.by_project


def test_a_queue_of_batches_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PendingBatchQueue(tmp_path, 10**6).add([make_batch("a", "metadata", "x")])
    make_unreadable(monkeypatch, tmp_path)
    with pytest.raises(DataFolderUnusable, match="cannot be used: Permission denied"):
        PendingBatchQueue(tmp_path, 10**6)


@pytest.mark.parametrize("project", ["", "it's", "ключ", "a\\b"])
def test_a_project_may_have_any_name(engine: ClickHouseEngine, project: str) -> None:
    engine.create_stream_tables([stream("s")])
    engine.append([make_batch("a", "metadata", "x", project=project)])
    assert known_paths(engine, project) == ({("metadata", "x"): TEXT} if project else {})
