"""What each project's events have is kept on the server: other processes learn it, and it outlives them all."""

from pathlib import Path

import msgspec
import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from cordwood.engines.clickhouse.pending import Pending
from cordwood.model.event import Batch, Event
from cordwood.model.shape import Kinds, ValueKind
from tests.contract.engine_asking import NOW_US, stream

TEXT = frozenset({ValueKind.TEXT})


def batch(name: str, *steps: str, project: str = "p") -> Batch:
    return Batch("s", [Event(name, NOW_US, metadata="{}")], NOW_US, {}, {project: {steps: TEXT}})


def known(engine: ClickHouse, project: str) -> Kinds:
    return engine.projects()["s"].shape(project, engine.shapes()["s"]).kinds


def test_a_process_that_starts_later_knows_them(engine: ClickHouse, address: str) -> None:
    engine.prepare([stream("s")])
    engine.append([batch("a", "metadata", "x")])
    engine.append([batch("b", "metadata", "x"), batch("c", "metadata", "y", project="q")])
    later = ClickHouse(address, Options())
    later.prepare([stream("s")])
    later.append([])
    try:
        assert known(later, "p") == {("metadata", "x"): TEXT}
        assert known(later, "q") == {("metadata", "y"): TEXT}
    finally:
        later.close()


def test_what_waits_on_disk_is_learnt_of_when_it_is_sent(tmp_path: Path) -> None:
    pending = Pending(tmp_path, 10**6)
    sent = batch("a", "metadata", "x")
    pending.add([sent])
    taken: list[Batch] = []
    pending.drain(taken.extend)
    assert msgspec.structs.asdict(taken[0])["by_project"] == sent.by_project


@pytest.mark.parametrize("project", ["", "it's", "ключ", "a\\b"])
def test_any_text_may_name_a_project(engine: ClickHouse, project: str) -> None:
    engine.prepare([stream("s")])
    engine.append([batch("a", "metadata", "x", project=project)])
    assert known(engine, project) == ({("metadata", "x"): TEXT} if project else {})
