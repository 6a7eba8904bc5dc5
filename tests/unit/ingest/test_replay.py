"""Replays of quarantined items."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import ItemNotReplayable
from cordwood.ingest.accept import BodyFormat, Intake, QuarantinedItem
from cordwood.model.definitions import Stream

NOW_US = 1_700_000_000_000_000
STREAM = Stream("s", UUID(int=1))


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([STREAM])
    opened = Intake(engine, lambda: NOW_US)
    yield opened
    opened.close()
    engine.close()


@pytest.mark.parametrize("text", ["", "\n", " "])
def test_an_empty_item_has_no_event_to_replay(intake: Intake, text: str) -> None:
    item = QuarantinedItem("q1", NOW_US, STREAM.name, BodyFormat.SYSLOG, text)
    with pytest.raises(ItemNotReplayable, match=r"It has no event\."):
        asyncio.run(intake.replay_quarantined_item(STREAM, item))
