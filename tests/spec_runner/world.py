"""Engines for cases. Each has the streams, the events and the clock of a case."""

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Engine, ReadProgress
from cordwood.ingest.accept import Intake
from cordwood.model.datatype import Rows
from cordwood.model.definitions import Stream
from cordwood.model.redaction import RedactionConfig, RedactionRules
from cordwood.sql.bind import bind_parameters
from cordwood.sql.stages import Statement
from tests.chdb_databases import fresh_database
from tests.spec_runner.compiling import rules_of_redact_fence
from tests.spec_runner.page import Case, Fence

DEFAULT_CLOCK = "2024-05-15T12:34:56Z"
LIMITS = AnswerLimits(max_rows=1000, timeout_seconds=30)

OpenEngine = Callable[[Path, Callable[[], int], RedactionConfig], Engine]


@dataclass(frozen=True)
class EngineKind:
    """The name of an engine, and a function that opens the engine in an empty folder."""

    name: str
    open: OpenEngine


def open_duckdb(folder: Path, clock_us: Callable[[], int], redacting: RedactionConfig) -> Engine:
    return DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(threads=1, redaction=redacting), clock_us=clock_us)


def open_clickhouse(_: Path, __: Callable[[], int], redacting: RedactionConfig) -> Engine:
    """Open an engine without TTL, because by the server's clock the events of the pages are past their retention."""
    module = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = module.ClickHouseEngine(
        fresh_database(), module.ClickHouseOptions(has_ttl=False, redaction=redacting)
    )
    return engine


ENGINES = (EngineKind("duckdb", open_duckdb), EngineKind("clickhouse", open_clickhouse))


class CaseEngine:
    """An engine with the events of one set of stream fences."""

    def __init__(
        self, kind: EngineKind, folder: Path, streams: list[Fence], now_us: int, rules: RedactionRules
    ) -> None:
        self.now_us = now_us
        self.engine = kind.open(folder, lambda: now_us, RedactionConfig(rules, "key"))
        known = {fence.options["name"]: _stream(fence.options["name"]) for fence in streams}
        self.engine.create_stream_tables(list(known.values()))
        intake = Intake(self.engine, lambda: now_us)
        for fence in streams:
            stream = known[fence.options["name"]]
            if fence.text.strip():
                asyncio.run(intake.ingest_body(stream, "application/x-ndjson", fence.text.encode()))
        intake.close()

    def ask(self, statement: Statement, parameters: dict[str, str]) -> Rows:
        question = bind_parameters(statement, parameters, self.now_us, self.engine.regex_error)
        return self.engine.answer(question, LIMITS, Unstoppable())

    def close(self) -> None:
        self.engine.close()


class Unstoppable:
    """A cancel token that is never cancelled."""

    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


class CaseEngines:
    """Opened engines by streams, clock and redaction rules. Cases for which all three are equal share an engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worlds: dict[tuple[object, ...], CaseEngine] = {}

    def of(self, kind: EngineKind, case: Case) -> CaseEngine:
        streams = case.fences_of("stream")
        clock = (case.text("clock") or DEFAULT_CLOCK).strip()
        rules = rules_of_redact_fence(case)
        key = (kind.name, clock, rules, *((fence.options["name"], fence.text) for fence in streams))
        if key not in self._worlds:
            folder = self._folder / str(len(self._worlds))
            self._worlds[key] = CaseEngine(kind, folder, streams, microseconds(clock), rules)
        return self._worlds[key]

    def close(self) -> None:
        """Close and drop all engines, because open engines would report leaks at exit."""
        while self._worlds:
            self._worlds.popitem()[1].close()


def microseconds(time: str) -> int:
    parsed = datetime.fromisoformat(time)
    return int(parsed.timestamp()) * 1_000_000 + parsed.microsecond


def _stream(name: str) -> Stream:
    return Stream(name, uuid5(NAMESPACE_DNS, name))
