"""Helpers that run ClickHouse SQL directly, without the compiler."""

import time
import uuid
from collections.abc import Callable, Sequence

import msgspec

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine
from cordwood.engines.engine import AnswerLimits, ReadProgress
from cordwood.model.datatype import Datatype, Kind
from cordwood.model.definitions import Stream
from cordwood.model.event import Event
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, Statement

# Events must have the current time, because ClickHouse's TTL drops old events by the server's clock.
NOW_US = time.time_ns() // 1000
EDGE_STREAM = Stream("edge.logs", uuid.UUID(int=1))
AUTH_STREAM = Stream("auth", uuid.UUID(int=2), retention_seconds=3600)
LIMITS = AnswerLimits(max_rows=1000, timeout_seconds=10)


class ManualCancel:
    """A cancel token that a test cancels by calling `stop`."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] = lambda: None

    def on_cancel(self, stop: Callable[[], None]) -> None:
        self.stop = stop

    def set_progress_reader(self, read: ReadProgress) -> None: ...


class AlreadyCancelled(ManualCancel):
    def on_cancel(self, stop: Callable[[], None]) -> None:
        stop()


def question(sql: str, types: Sequence[Kind | None] = (), **values: object) -> BoundStatement:
    names = tuple(f"c{at}" for at, _ in enumerate(types))
    datatypes = tuple(Datatype(kind) if kind else None for kind in types)
    return BoundStatement(
        Statement(
            plan_without_placeholders(sql),
            (),
            (),
            (EDGE_STREAM.name, AUTH_STREAM.name),
            column_names=names,
            column_types=datatypes,
        ),
        values,
    )


def answer_rows(
    engine: ClickHouseEngine, sql: str, types: Sequence[Kind | None] = (), **values: object
) -> list[tuple[object, ...]]:
    rows = engine.answer(question(sql, types, **values), LIMITS, ManualCancel())
    return [
        tuple(bytes(cell) if isinstance(cell, msgspec.Raw) else cell for cell in row)
        for batch in rows.batches
        for row in batch
    ]


def event(event_id: str, at_us: int = NOW_US, metadata: str | None = None) -> Event:
    return Event(event_id, at_us, f"message {event_id}", "default", metadata)
