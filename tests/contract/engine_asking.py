"""Helpers that compile BigQuery SQL and run it on an engine."""

from collections.abc import Callable
from uuid import UUID, uuid5

from cordwood.engines.engine import AnswerLimits, Cancellation, Engine, ReadProgress
from cordwood.model.datatype import Row, Rows
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint

NOW_US = 1_700_000_000_000_000
LIMITS = AnswerLimits(max_rows=10_000, timeout_seconds=20.0)


class NeverCancelled:
    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


NEVER_CANCELLED = NeverCancelled()


def stream(name: str = "s", **settings: float) -> Stream:
    return Stream(name, uuid5(UUID(int=7), name), **settings)  # type: ignore[arg-type]


def batch(*events: Event, to: str = "s", received_us: int = NOW_US) -> ReceivedEventBatch:
    return ReceivedEventBatch(to, events, received_us)


def ask(engine: Engine, sql: str, limits: AnswerLimits = LIMITS, cancel: Cancellation = NEVER_CANCELLED) -> Rows:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=limits.max_rows))
    statement = compile_saved_query(program, engine.compile_target, engine.shapes_by_stream())
    return engine.answer(bind_parameters(statement, {}, NOW_US, engine.regex_error), limits, cancel)


def rows(engine: Engine, sql: str, limits: AnswerLimits = LIMITS, cancel: Cancellation = NEVER_CANCELLED) -> list[Row]:
    return [row for part in ask(engine, sql, limits, cancel).batches for row in part]


def ids(engine: Engine, of: str = "s") -> list[str]:
    return sorted(str(row[0]) for row in rows(engine, f"select id from `{of}`"))
