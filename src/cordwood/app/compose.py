"""Wiring: open the engine, the stores and the cache that the settings name, and connect them.

Endpoints are compiled when they are loaded, because an error in one would make every call of it fail.
"""

import importlib
import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec

import cordwood
from cordwood.access import Access, FixedKey
from cordwood.app.alerting import alert_check, alert_targets, open_alerts
from cordwood.app.configured_keys import CreatedKeys, first_keys, fixed_keys, signed_keys
from cordwood.app.definitions import Checks
from cordwood.app.engine_process import EngineHost
from cordwood.app.management import Management
from cordwood.app.passed_checks import PassedChecks
from cordwood.app.redaction_settings import checked_rules, redaction_key, redaction_rules
from cordwood.cache.in_memory import MemoryCache
from cordwood.catalog.catalog import Contents, Sources
from cordwood.catalog.files import FileCatalog, read_contents
from cordwood.catalog.managed_files import ManagedFiles
from cordwood.catalog.sqlite_keys import SQLiteKeys
from cordwood.dialects import compile_saved, compile_sql, read_endpoint
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, Options, reuse_limits
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.engines.hosted.hosted_engine import HostedEngine
from cordwood.errors import COMPILE_FAULTS, BadSetting, CompileTooLong, Span
from cordwood.folder import DataFolder
from cordwood.ingest.accept import Intake, IntakeLimits
from cordwood.ingest.parsed_body import MAX_ITEMS
from cordwood.ingest.quarantine import QUARANTINE
from cordwood.ingest.stream_mapping import read_mapping
from cordwood.model.endpoint import Endpoint
from cordwood.model.redaction import RedactionConfig
from cordwood.model.stream import Stream
from cordwood.model.timestamps import now_us
from cordwood.observe.observation import Noted, Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import AnswerDependencies, Answers
from cordwood.serve.backup_archive import Backups
from cordwood.serve.paging import Cursors
from cordwood.serve.tails import TailLimits, Tails
from cordwood.settings.settings import Limits, Settings
from cordwood.sql.program import Program, as_file_error, with_positions
from cordwood.sql.stages import Target
from cordwood.web.lifecycle import Services
from cordwood.web.options import Webhooks, WebOptions, query_budget
from cordwood.web.receiving import BodyBounds


def check(endpoint: Endpoint, streams: Sequence[Stream], target: Target, max_seconds: float = math.inf) -> None:
    """Compile an endpoint; raise BadEndpointFile with the position of an error.

    Each query has its own compile budget; `max_seconds` of CPU time limits all queries of the endpoint together. Of an
    endpoint with many sources, only the first ones are compiled: their number must not stop the service, and callers
    name the sources that they read.
    """
    deadline = time.thread_time() + max_seconds
    checked = msgspec.structs.replace(endpoint, streams=endpoint.streams[:_MAX_CHECKED_STREAMS])
    program = with_positions(read_endpoint(checked, [stream.name for stream in (*streams, QUARANTINE)]))
    if len(program.sources) > _MAX_CHECKED_STREAMS:
        sources = dict(islice(program.sources.items(), _MAX_CHECKED_STREAMS))
        program = msgspec.structs.replace(program, sources=sources)
    try:
        compile_saved(program, target, {})
        for name in program.sub_query_names if endpoint.sandbox and not program.sources else ():
            if time.thread_time() > deadline:
                message = f"The endpoint's sub-queries take more than {max_seconds:g} s to compile."
                raise CompileTooLong(message, hint="Split it into several endpoints.")
            _check_sub_query(program, name, target)
    except COMPILE_FAULTS as fault:
        raise as_file_error(fault, endpoint) from fault


def _check_sub_query(program: Program, name: str, target: Target) -> None:
    """Compile a query over a sub-query, because callers may use one that the endpoint's own query does not use."""
    try:
        compile_sql(program, f"select * from `{name}`", target, {})  # noqa: S608 - its own name
    except COMPILE_FAULTS as fault:
        cte = program.sub_queries[name.lower()]
        span = Span(cte.meta.get("line", 1), cte.meta.get("col", 1))
        raise type(fault)(f"The sub-query {name}: {fault.message}", hint=fault.hint, span=fault.span or span) from fault


# The estimated memory of the interpreter, of bodies that are being decoded, and of events that are not flushed yet.
_PROCESS_BYTES = 250 * 10**6
# The CPU time for compiling all queries of an endpoint that is sent over HTTP, for which other changes and each start
# wait.
_CHECK_SECONDS = 3.0
_MAX_CHECKED_STREAMS = 12
_MIN_ENGINE_BYTES = 96 * 10**6
_MAX_CONNECTIONS = 10_000
_CONNECTION_BYTES = 64 * 1024
# The smallest event takes about 1 KB once it is decoded, and all events of a body may take a quarter of the ceiling.
_ITEM_BYTES = 4096
_MAX_UNFLUSHED_BYTES = 96 * 2**20
_MAX_COMPILED_BYTES = 16 * 2**20
_MIN_RING_BYTES = 8 * 2**20

_CLICKHOUSE = ("clickhouse://", "clickhouses://", "chdb://")


class Components(msgspec.Struct, frozen=True):
    """All open components in the order in which they were opened. They are closed in reverse order."""

    services: Services
    catalog: FileCatalog
    engine: Engine
    keys: SQLiteKeys
    settings: Settings
    management: Management

    def reload(self) -> Contents:
        """Read all files and keys again. An error leaves everything unchanged."""
        signed = signed_keys(self.settings.keys)
        contents = self.management.reload()
        self.services.access.signed = signed
        return contents

    def create_first_keys(self) -> CreatedKeys | None:
        """Create one key of each kind, unless the settings have keys or the store ever had any."""
        return None if fixed_keys(self.settings.keys) else first_keys(self.keys)

    def has_private_key(self) -> bool:
        """Return whether a private key exists besides the one for local commands."""
        if self.services.access.signed is not None:
            return True
        stored_scopes = [key.terms.scopes for key in self.keys.in_force()]
        return any("private" in scopes for scopes in (*stored_scopes, *self._configured_scopes()))

    def _configured_scopes(self) -> list[frozenset[str]]:
        return [key.caller.scopes for key in fixed_keys(self.settings.keys)]

    @property
    def hosted(self) -> HostedEngine | None:
        """The engine if it runs in its own process, else None."""
        return self.engine if isinstance(self.engine, HostedEngine) else None

    def close(self) -> None:
        """Store pending events and close all components. Call it after the last request."""
        self.services.alerts.close()
        self.services.intake.close()
        self.engine.close()
        self.keys.close()


def build(
    settings: Settings,
    folder: DataFolder,
    observer: Observer,
    local_keys: Sequence[FixedKey] = (),
    clock_us: Callable[[], int] = now_us,
    host: EngineHost | None = None,
    *,
    evaluates_alerts: bool = True,
) -> Components:
    """Open all components that the settings name, in a data folder that this process owns.

    Without `evaluates_alerts`, the targets of alerts need not be in the settings. With `host`, the embedded engine runs
    in its own process, whose clock is the system's and not `clock_us`. The engine is opened while the files are read,
    because each takes a tenth of a second.
    """
    folder.require_complete()
    with ExitStack() as cleanup, ThreadPoolExecutor(1, thread_name_prefix="open") as executor:
        engine_future = executor.submit(_engine, settings, folder, observer, clock_us, host)
        cleanup.callback(_close_engine, engine_future)
        targets = alert_targets(settings) if evaluates_alerts else {}
        target_names = targets.keys() if evaluates_alerts else None
        contents = _read_checked(settings, folder, target_for(settings), target_names)
        catalog = FileCatalog(contents)
        fixed, signed = fixed_keys(settings.keys), signed_keys(settings.keys)
        keys = SQLiteKeys(folder.keys_file)
        cleanup.callback(keys.close)
        engine = engine_future.result()
        engine.prepare(contents.streams)
        rules = checked_rules(settings, engine)
        cleanup.pop_all()
    management = Management(
        catalog,
        engine,
        ManagedFiles(folder.path),
        lambda: _read_checked(settings, folder, engine.target, target_names),
        Checks(
            lambda endpoint, streams: check(endpoint, streams, engine.target, _CHECK_SECONDS),
            alert_check(engine.target, target_names),
        ),
        settings.ingest.new_streams,
    )
    secret = redaction_key(settings, folder).encode()
    dependencies = AnswerDependencies(
        catalog, engine, MemoryCache(settings.serve.cache_memory), observer, rules, Cursors(secret)
    )
    answers = Answers(dependencies, _serve_limits(settings.limits), clock_us)
    intake = Intake(engine, clock_us, _intake_limits(settings), secret)
    alerts = open_alerts(settings, folder, catalog, answers, targets, clock_us, observer.note)
    services = Services(
        answers=answers,
        intake=intake,
        tails=Tails(answers, intake, _tail_limits(settings), observer.note),
        access=Access(keys, (*fixed, *local_keys), signed),
        catalog=catalog,
        alerts=alerts,
        backups=Backups(engine, keys.copy_database, alerts.copy_database, folder, cordwood.__version__),
        stream_maker=management,
        endpoint_definitions=management.endpoints,
        stream_definitions=management.streams,
    )
    return Components(services, catalog, engine, keys, settings, management)


def _close_engine(engine_future: Future[Engine]) -> None:
    if engine_future.exception() is None:
        engine_future.result().close()


def _read_checked(settings: Settings, folder: DataFolder, target: Target, targets: Collection[str] | None) -> Contents:
    """Return the contents of all files. Endpoints that compiled at an earlier start are not compiled again.

    `targets` are the names of targets of alerts, or None if they are not checked.
    """
    checks = PassedChecks(folder.path, target.name, lambda endpoint, streams: check(endpoint, streams, target))
    contents = read_contents(sources_of(settings), checks.check, alert_check(target, targets))
    checks.write()
    return contents


def checked_contents(sources: Sources, target: Target | None = None) -> Contents:
    """Return the contents of all files, compiled for an engine; raise BrokenFiles if any has an error.

    The names of alert targets are not checked, because they may be configured elsewhere.
    """
    checked_target = target or DuckDBTarget()
    return read_contents(
        sources,
        lambda endpoint, streams: check(endpoint, streams, checked_target),
        alert_check(checked_target, None),
    )


def sources_of(settings: Settings) -> Sources:
    serve = settings.serve
    return Sources(
        endpoints=Path(serve.endpoints) if serve.endpoints else None,
        streams=Path(serve.streams) if serve.streams else None,
        managed=Path(serve.data_dir),
    )


def web_options(settings: Settings) -> WebOptions:
    return WebOptions(
        logflare_errors=settings.compat.errors == "logflare",
        events=BodyBounds(settings.ingest.body_size, min(settings.ingest.inflated_size, settings.limits.ceiling // 2)),
        unread_bytes=settings.limits.ceiling // 8,
        webhooks=Webhooks(settings.ingest.vercel_secret, settings.ingest.vercel_verify, settings.ingest.github_secret),
        query_budget=query_budget(settings.limits.ceiling // 16),
        stream_mapping=read_mapping(settings.ingest.stream_map, settings.ingest.default_stream),
    )


def connections_allowed(settings: Settings) -> int:
    """Return the limit on connections. Each takes about 30 KB, and as much again while a request is parsed."""
    return settings.web.connections or min(_MAX_CONNECTIONS, settings.limits.ceiling // _CONNECTION_BYTES)


def _engine(
    settings: Settings, folder: DataFolder, observer: Observer, clock_us: Callable[[], int], host: EngineHost | None
) -> Engine:
    def report(text: str) -> None:
        observer.note(Noted(message=text, level="warning"))

    if is_clickhouse(settings):
        return clickhouse_module().open_clickhouse(settings, folder, report, observer.note)  # type: ignore[no-any-return] # loaded late
    if settings.engine != "duckdb":
        hint = "There are: duckdb, and clickhouse:// or chdb:// addresses."
        raise BadSetting(f"engine: {shown_address(settings.engine)!r} is no engine.", hint=hint)
    options = Options(
        memory_bytes=_duckdb_bytes(settings),
        threads=settings.duckdb.threads or max(1, min(8, os.cpu_count() or 1)),
        report=report,
        note=observer.note,
        redacting=RedactionConfig(redaction_rules(settings), redaction_key(settings, folder)),
        max_store_bytes=settings.limits.store_size,
        max_unflushed_bytes=min(_MAX_UNFLUSHED_BYTES, settings.limits.ceiling // 10),
        parsed_cache_bytes=_compiled_bytes(settings.limits),
        reuse=reuse_limits(settings.duckdb.partial_answers, _duckdb_bytes(settings)),
    )
    if host is not None:
        return host.open(folder.engine_folder, options, observer.note)
    return DuckDBEngine(folder.engine_folder, DuckDBTarget(), options, clock_us=clock_us)


def target_for(settings: Settings) -> Target:
    """Return the compile target of the configured engine, without importing other engines."""
    if not is_clickhouse(settings):
        return DuckDBTarget()
    return cast(Target, importlib.import_module("cordwood.app.targets").target_of("clickhouse"))


def is_clickhouse(settings: Settings) -> bool:
    return settings.engine.startswith(_CLICKHOUSE)


def clickhouse_module() -> ModuleType:
    """Import the ClickHouse module, whose client is a large optional dependency."""
    try:
        return importlib.import_module("cordwood.app.clickhouse")
    except ModuleNotFoundError as missing:
        hint = "Install it: pip install 'cordwood[clickhouse]' (and chdb, for chdb:// addresses)."
        raise BadSetting(f"engine: ClickHouse needs {missing.name}, which is not installed.", hint=hint) from missing


def shown_address(address: str) -> str:
    """Return the address without credentials."""
    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}…{rest[rest.rindex('@') :]}" if "@" in rest else address


def _duckdb_bytes(settings: Settings) -> int:
    """Return the configured memory of the engine, or what the ceiling leaves for it."""
    remaining = settings.limits.ceiling - _PROCESS_BYTES - settings.serve.cache_memory
    return settings.duckdb.memory or max(_MIN_ENGINE_BYTES, remaining)


def _intake_limits(settings: Settings) -> IntakeLimits:
    """Return the limits of ingestion. A body takes about three times its size while it is decoded."""
    ingest = settings.ingest
    ceiling = settings.limits.ceiling
    queue_bytes, items = min(ingest.queue_size, ceiling // 24), min(MAX_ITEMS, ceiling // _ITEM_BYTES)
    large_bytes = None if is_clickhouse(settings) else _duckdb_bytes(settings) // 4
    return IntakeLimits(ingest.event_size, ingest.stream_rate, queue_bytes, items, large_bytes)


def _serve_limits(limits: Limits) -> ServeLimits:
    return ServeLimits(
        query_seconds=limits.query_time,
        answer_bytes=limits.answer_size,
        concurrent_queries=limits.concurrent_queries,
        queued_queries=limits.queued_queries,
        queue_seconds=limits.queue_time,
        key_requests_per_second=limits.key_rate,
        key_concurrent_queries=limits.key_concurrent_queries,
        compiled_bytes=_compiled_bytes(limits),
    )


def _tail_limits(settings: Settings) -> TailLimits:
    """Return the limits of followers: half of the connections at most, and some memory for slow readers."""
    limits = settings.limits
    followers = limits.followers or connections_allowed(settings) // 2
    return TailLimits(followers, limits.key_followers, max(_MIN_RING_BYTES, limits.ceiling // 32))


def _compiled_bytes(limits: Limits) -> int:
    """Return the budget of each of the three caches of compiled queries."""
    return min(_MAX_COMPILED_BYTES, limits.ceiling // 32)
