"""Open the engine, stores, cache and alerts that the settings configure, and connect them with the log and metrics."""

import importlib
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self, cast

import msgspec

import cordwood
from cordwood.access import Authenticator, FixedKey
from cordwood.alerts.sender import SendLimits
from cordwood.alerts.service import AlertOptions, AlertService, DeliveryTarget
from cordwood.app.checks import (
    MAX_ENDPOINT_CHECK_SECONDS,
    check_endpoint,
    create_compile_target,
    make_alert_check,
    read_and_check_definitions_cached,
    uses_clickhouse,
)
from cordwood.app.configuration import (
    CreatedKeys,
    checked_redaction_rules,
    compile_cache_bytes,
    create_first_keys,
    create_signed_key_verifier,
    duckdb_memory_bytes,
    fixed_keys,
    intake_limits,
    read_or_create_redaction_key,
    redaction_rules,
    serve_limits,
    tail_limits,
)
from cordwood.app.definitions import DefinitionChecks
from cordwood.app.engine_process import EngineLauncher
from cordwood.app.management import DefinitionManager
from cordwood.catalog.catalog import Catalog, CatalogContents
from cordwood.catalog.file_catalog import FileCatalog, ManagedDefinitionFiles
from cordwood.catalog.sqlite_keys import SQLiteKeyStore
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions, partial_answer_limits
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.engines.hosted.hosted_engine import HostedEngine
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.ingest.accept import Intake
from cordwood.model.redaction import RedactionConfig
from cordwood.model.timestamps import now_us
from cordwood.observe.disk import DiskForecast
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import JsonLineLog, Observer, OperatorMessage, RecordObservation
from cordwood.processes.memory_use import total_memory_bytes
from cordwood.serve.answer import QueryService, QueryServiceDependencies
from cordwood.serve.backup_archive import BackupService
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.paging import CursorCodec
from cordwood.serve.tails import TailService
from cordwood.settings.settings import Settings
from cordwood.web.encode import JSON_FORMAT
from cordwood.web.services import Services

# Alertmanager drops an alert that is not sent again in time, so a firing alert is sent to Alertmanager at this
# interval.
_ALERTMANAGER_REPEAT_SECONDS: Final = 60.0
_MAX_UNFLUSHED_BYTES = 96 * 2**20


class ServiceComponents(msgspec.Struct, frozen=True):
    """All open components of the service, and the settings with which they were opened."""

    services: Services
    catalog: FileCatalog
    engine: Engine
    key_store: SQLiteKeyStore
    settings: Settings
    definition_manager: DefinitionManager

    def reload_definitions(self) -> CatalogContents:
        """Read all definition files and the JWKS file for signed keys again. If a file has an error, change nothing."""
        signed = create_signed_key_verifier(self.settings.keys)
        contents = self.definition_manager.reload()
        self.services.authenticator.signed_key_verifier = signed
        return contents

    def create_first_keys(self) -> CreatedKeys | None:
        """Create a private and a public key; return None if the settings have keys or the store ever had a key."""
        return None if fixed_keys(self.settings.keys) else create_first_keys(self.key_store)

    def has_private_key(self) -> bool:
        """Return whether a private key exists or signed keys are accepted. The key of local commands does not count."""
        if self.services.authenticator.signed_key_verifier is not None:
            return True
        stored_scopes = [key.terms.scopes for key in self.key_store.active_keys()]
        return any("private" in scopes for scopes in (*stored_scopes, *self._configured_scopes()))

    def _configured_scopes(self) -> list[frozenset[str]]:
        return [key.caller.scopes for key in fixed_keys(self.settings.keys)]

    @property
    def hosted_engine(self) -> HostedEngine | None:
        """The engine if it runs in its own process, else None."""
        return self.engine if isinstance(self.engine, HostedEngine) else None

    def close(self) -> None:
        """Store the events that are still in memory, and close all components.

        Call this method after the last request.
        """
        self.services.alert_service.close()
        self.services.intake.close()
        self.engine.close()
        self.key_store.close()


def build_components(
    settings: Settings,
    folder: DataFolder,
    observer: Observer,
    local_keys: Sequence[FixedKey] = (),
    clock_us: Callable[[], int] = now_us,
    host: EngineLauncher | None = None,
    *,
    evaluates_alerts: bool = True,
) -> ServiceComponents:
    """Open all components that the settings name, in a data folder that this process owns.

    If `evaluates_alerts` is false, alerts may name targets that are not in the settings. If the launcher `host` is
    given, the embedded engine runs in its own process, which uses the system's clock instead of `clock_us`. The engine
    is opened in a thread while the definition files are read, because each of the two tasks takes a tenth of a second.
    """
    folder.require_finished_restore()
    with ExitStack() as cleanup, ThreadPoolExecutor(1, thread_name_prefix="open") as executor:
        engine_future = executor.submit(_open_engine, settings, folder, observer, clock_us, host)
        cleanup.callback(_close_engine, engine_future)
        targets = _alert_targets(settings) if evaluates_alerts else {}
        target_names = targets.keys() if evaluates_alerts else None
        contents = read_and_check_definitions_cached(settings, folder, create_compile_target(settings), target_names)
        catalog = FileCatalog(contents)
        fixed, signed = fixed_keys(settings.keys), create_signed_key_verifier(settings.keys)
        keys = SQLiteKeyStore(folder.keys_file)
        cleanup.callback(keys.close)
        engine = engine_future.result()
        engine.create_stream_tables(contents.streams)
        rules = checked_redaction_rules(settings, engine)
        cleanup.pop_all()
    management = DefinitionManager(
        catalog,
        engine,
        ManagedDefinitionFiles(folder.path),
        lambda: read_and_check_definitions_cached(settings, folder, engine.compile_target, target_names),
        DefinitionChecks(
            lambda endpoint, streams: check_endpoint(
                endpoint, streams, engine.compile_target, MAX_ENDPOINT_CHECK_SECONDS
            ),
            make_alert_check(engine.compile_target, target_names),
        ),
        settings.ingest.new_streams,
    )
    secret = read_or_create_redaction_key(settings, folder).encode()
    dependencies = QueryServiceDependencies(
        catalog, engine, MemoryAnswerCache(settings.serve.cache_memory), observer, rules, CursorCodec(secret)
    )
    answers = QueryService(dependencies, serve_limits(settings.limits), clock_us)
    intake = Intake(engine, clock_us, intake_limits(settings), secret)
    alerts = _open_alert_service(settings, folder, catalog, answers, targets, clock_us, observer.record)
    services = Services(
        query_service=answers,
        intake=intake,
        tail_service=TailService(answers, intake, tail_limits(settings), observer.record),
        authenticator=Authenticator(keys, (*fixed, *local_keys), signed),
        catalog=catalog,
        alert_service=alerts,
        backup_service=BackupService(engine, keys.copy_database, alerts.copy_database, folder, cordwood.__version__),
        stream_creator=management,
        endpoint_definitions=management.endpoint_definitions,
        stream_definitions=management.stream_definitions,
    )
    return ServiceComponents(services, catalog, engine, keys, settings, management)


def _close_engine(engine_future: Future[Engine]) -> None:
    if engine_future.exception() is None:
        engine_future.result().close()


def _open_engine(
    settings: Settings, folder: DataFolder, observer: Observer, clock_us: Callable[[], int], host: EngineLauncher | None
) -> Engine:
    def report_operator_message(text: str) -> None:
        observer.record(OperatorMessage(message=text, level="warning"))

    if uses_clickhouse(settings):
        return import_clickhouse_module().open_clickhouse(settings, folder, report_operator_message, observer.record)  # type: ignore[no-any-return] # loaded late
    if settings.engine != "duckdb":
        hint = "There are: duckdb, and clickhouse:// or chdb:// addresses."
        raise BadSetting(f"engine: {address_without_credentials(settings.engine)!r} is not an engine.", hint=hint)
    options = DuckDBOptions(
        memory_bytes=duckdb_memory_bytes(settings),
        threads=settings.duckdb.threads or max(1, min(8, os.cpu_count() or 1)),
        report_message=report_operator_message,
        record_observation=observer.record,
        redaction=RedactionConfig(redaction_rules(settings), read_or_create_redaction_key(settings, folder)),
        max_store_bytes=settings.limits.store_size,
        max_unflushed_bytes=min(_MAX_UNFLUSHED_BYTES, settings.limits.memory_ceiling // 10),
        parsed_statement_cache_bytes=compile_cache_bytes(settings.limits),
        partial_answer_limits=partial_answer_limits(settings.duckdb.partial_answers, duckdb_memory_bytes(settings)),
    )
    if host is not None:
        return host.launch_engine(folder.engine_folder, options, observer.record)
    return DuckDBEngine(folder.engine_folder, DuckDBTarget(), options, clock_us=clock_us)


def import_clickhouse_module() -> ModuleType:
    """Import and return the ClickHouse module; raise BadSetting if its optional client library is not installed."""
    try:
        return importlib.import_module("cordwood.app.clickhouse")
    except ModuleNotFoundError as missing:
        hint = "Install it: pip install 'cordwood[clickhouse]' (and chdb, for chdb:// addresses)."
        raise BadSetting(f"engine: ClickHouse needs {missing.name}, which is not installed.", hint=hint) from missing


def address_without_credentials(address: str) -> str:
    """Return an engine's address with any user name and password replaced by `…`."""
    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}…{rest[rest.rindex('@') :]}" if "@" in rest else address


def _alert_targets(settings: Settings) -> Mapping[str, DeliveryTarget]:
    """Return the alert targets in the settings.

    If there are none, the module that delivers notifications is not imported.
    """
    if not settings.alerts.targets:
        return {}
    deliverer: Any = _import_alert_deliverer().NotificationDeliverer.from_settings(settings.alerts)
    return {
        target.name: DeliveryTarget(
            target.name,
            str(target.kind),
            target.host,
            _ALERTMANAGER_REPEAT_SECONDS if target.kind == "alertmanager" else None,
            target.max_changes_per_notification,
            cast("Callable[..., None]", partial(deliverer.deliver, target)),
        )
        for target in deliverer.targets_by_name.values()
    }


def _open_alert_service(
    settings: Settings,
    folder: DataFolder,
    catalog: Catalog,
    answers: QueryService,
    targets: Mapping[str, DeliveryTarget],
    clock_us: Callable[[], int],
    note: RecordObservation,
) -> AlertService:
    """Create the alert service; if there are alerts, also open the database in which it stores their states.

    Raise DataFolderUnusable if this database is damaged.
    """
    options = AlertOptions(
        store_file=folder.alerts_file,
        targets_by_name=targets,
        send_limits=SendLimits(settings.alerts.send_rate, settings.alerts.retry_time),
        external_url=settings.alerts.external_url,
        answer_format=JSON_FORMAT,
    )
    alerts = AlertService(catalog, answers, options, clock_us, note)
    if alerts.is_store_needed():
        alerts.open_store()
    return alerts


def _import_alert_deliverer() -> ModuleType:
    return importlib.import_module("cordwood.alerts.delivery.deliverer")


class Observability(msgspec.Struct, frozen=True):
    """The observer with its log and metrics, the disk forecast, and the memory meter.

    The disk forecast estimates when the disk will be full. Gauges of the metrics read the forecast and the meter.
    """

    observer: Observer
    metrics: Metrics
    log: JsonLineLog
    disk_forecast: DiskForecast
    memory_meter: "MemoryMeter"

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        ceiling = float(settings.limits.memory_ceiling)
        folder, memory = Path(settings.serve.data_dir), MemoryMeter()
        gauges = {
            "cordwood_memory_bytes": memory.used_bytes,
            "cordwood_memory_ceiling_bytes": lambda: ceiling,
            "cordwood_disk_free_bytes": lambda: _free_disk_bytes(folder),
        }
        metrics = Metrics(cordwood.__version__, gauges)
        log = JsonLineLog(sys.stderr.buffer, settings.web.log_level)
        disk = DiskForecast(
            lambda: _free_disk_bytes(folder),
            time.monotonic,
            lambda sentence: log.record(OperatorMessage(message=sentence, level="warning")),
        )
        metrics.gauge_readers["cordwood_disk_full_seconds"] = lambda: disk.seconds_until_full
        return cls(Observer((log, metrics)), metrics, log, disk, memory)


def _free_disk_bytes(folder: Path) -> float:
    """Return the free bytes of the file system that has the folder, or will have it once the folder is created."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    return float(shutil.disk_usage(existing).free)


class MemoryMeter(msgspec.Struct):
    """Measures the memory of this process and of its child processes, whose ids `get_child_pids` returns."""

    get_child_pids: Callable[[], list[int]] = list

    def used_bytes(self) -> float:
        """Return the memory that all processes use, with shared pages counted once.

        If the system does not report it, return the peak memory of this process instead.
        """
        size = total_memory_bytes([os.getpid(), *self.get_child_pids()])
        return float(size) if size is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
