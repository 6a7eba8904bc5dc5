"""Check endpoints and alerts by compiling them for the engine; skip endpoints that passed an earlier check.

If an endpoint has an error, every call of it would fail, so the service compiles endpoints when it starts. It remembers
which endpoints have compiled, and at the next start compiles only endpoints that are new or changed. For this purpose,
each endpoint has a digest of everything on which its check depends: its own text, the texts of the endpoints that it
reads, the streams that it may name, the engine's dialect, and the code of the compiler. The digests of endpoints that
compiled are stored in a file of the data folder. If this file is deleted, the next start compiles all endpoints.
"""

import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final, cast

import msgspec

import cordwood
from cordwood.alerts.evaluation import check_alert
from cordwood.catalog.alert_table import alert_fault
from cordwood.catalog.catalog import CatalogContents, CatalogSources
from cordwood.catalog.file_catalog import CheckAlert, read_catalog
from cordwood.dialects import compile_saved_query, compile_sql_query, read_endpoint
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import COMPILE_FAULTS, CompilationTimeout, Span, did_you_mean
from cordwood.folder import DataFolder, write_durably
from cordwood.ingest.quarantine import QUARANTINE_STREAM
from cordwood.model.definitions import Alert, Endpoint, Stream
from cordwood.settings.settings import Settings
from cordwood.sql.budget import allow_saved_query_cpu_time
from cordwood.sql.included_endpoints import possibly_read_table_names
from cordwood.sql.program import EndpointProgram, as_file_error, program_with_positions
from cordwood.sql.stages import Target

# The maximum CPU time for compiling all queries of an endpoint that is sent over HTTP. While they are compiled, other
# changes of definitions wait, and each start of the service may have to compile them again.
MAX_ENDPOINT_CHECK_SECONDS = 3.0
_MAX_CHECKED_SOURCES_PER_ENDPOINT = 12
_ALERT_TARGETS_HINT: Final = "Targets are named in the setting alerts.targets."
_CLICKHOUSE_SCHEMES: Final = ("clickhouse://", "clickhouses://", "chdb://")


def uses_clickhouse(settings: Settings) -> bool:
    return settings.engine.startswith(_CLICKHOUSE_SCHEMES)


def create_compile_target(settings: Settings) -> Target:
    """Return the compile target (the SQL dialect) of the configured engine, without importing other engines."""
    return COMPILE_TARGET_FACTORIES["clickhouse" if uses_clickhouse(settings) else "duckdb"]()


def _create_clickhouse_target() -> Target:
    return cast(Target, importlib.import_module("cordwood.engines.clickhouse.target").ClickHouseTarget())


COMPILE_TARGET_FACTORIES: Final[Mapping[str, Callable[[], Target]]] = {
    "clickhouse": _create_clickhouse_target,
    "duckdb": DuckDBTarget,
}


@allow_saved_query_cpu_time()
def check_endpoint(
    endpoint: Endpoint, streams: Sequence[Stream], target: Target, max_seconds: float = math.inf
) -> None:
    """Compile all queries of an endpoint; raise BadEndpointFile with the position of an error in its file.

    Each query has its own compile budget; in addition, `max_seconds` of CPU time limits all queries of the endpoint
    together. If an endpoint has many sources (the streams of its table), only the first
    `_MAX_CHECKED_SOURCES_PER_ENDPOINT` sources are compiled, so that the check does not block the service. An error in
    another source is reported by the first request that reads this source.
    """
    deadline = time.thread_time() + max_seconds
    checked = msgspec.structs.replace(endpoint, streams=endpoint.streams[:_MAX_CHECKED_SOURCES_PER_ENDPOINT])
    program = program_with_positions(read_endpoint(checked, [stream.name for stream in (*streams, QUARANTINE_STREAM)]))
    if len(program.sub_query_sources) > _MAX_CHECKED_SOURCES_PER_ENDPOINT:
        sources = dict(islice(program.sub_query_sources.items(), _MAX_CHECKED_SOURCES_PER_ENDPOINT))
        program = msgspec.structs.replace(program, sub_query_sources=sources)
    try:
        compile_saved_query(program, target, {})
        for name in (
            program.sub_query_names if endpoint.accepts_sandbox_queries and not program.sub_query_sources else ()
        ):
            if time.thread_time() > deadline:
                message = f"The endpoint's sub-queries take more than {max_seconds:g} s to compile."
                raise CompilationTimeout(message, hint="Split it into several endpoints.")
            _check_sub_query(program, name, target)
    except COMPILE_FAULTS as fault:
        raise as_file_error(fault, endpoint) from fault


def _check_sub_query(program: EndpointProgram, name: str, target: Target) -> None:
    """Compile `select *` from a sub-query.

    Sandbox queries may read a sub-query that the endpoint's own query does not use and that is therefore not compiled
    with it.
    """
    try:
        compile_sql_query(program, f"select * from `{name}`", target, {})  # noqa: S608 - its own name
    except COMPILE_FAULTS as fault:
        cte = program.sub_queries[name.lower()]
        span = Span(cte.meta.get("line", 1), cte.meta.get("col", 1))
        raise type(fault)(f"The sub-query {name}: {fault.message}", hint=fault.hint, span=fault.span or span) from fault


def read_and_check_definitions_cached(
    settings: Settings, folder: DataFolder, target: Target, targets: Collection[str] | None
) -> CatalogContents:
    """Read, check and return all definitions, without compiling endpoints that passed a check at an earlier start.

    Definitions are compiled for `target`, an SQL dialect. `targets` are the names of the configured alert targets, to
    which notifications are sent. If `targets` is None, it is not checked whether the targets that alerts name exist.
    """
    checks = CachingEndpointChecker(
        folder.path, target.name, lambda endpoint, streams: check_endpoint(endpoint, streams, target)
    )
    contents = read_catalog(catalog_sources_of(settings), checks.check, make_alert_check(target, targets))
    checks.write_passed_digests()
    return contents


def read_and_check_definitions(sources: CatalogSources, target: Target | None = None) -> CatalogContents:
    """Read, check and return all definitions; raise BrokenDefinitionFiles if a file has an error.

    Endpoints are compiled for `target`, by default DuckDB. The alert targets that alerts name are not checked, because
    they may be configured elsewhere.
    """
    checked_target = target or DuckDBTarget()
    return read_catalog(
        sources,
        lambda endpoint, streams: check_endpoint(endpoint, streams, checked_target),
        make_alert_check(checked_target, None),
    )


def catalog_sources_of(settings: Settings) -> CatalogSources:
    serve = settings.serve
    return CatalogSources(
        endpoints_folder=Path(serve.endpoints) if serve.endpoints else None,
        streams_file=Path(serve.streams) if serve.streams else None,
        managed_folder=Path(serve.data_dir),
    )


def make_alert_check(target: Target, targets: Collection[str] | None) -> CheckAlert:
    """Return a function that checks an alert by compiling its query for `target`, an SQL dialect.

    `targets` are the names of the alert targets to which the alert may send notifications; None permits any name.
    """

    def check_with_targets(alert: Alert, endpoint: Endpoint) -> None:
        check_alert(alert, endpoint, target)
        if targets is None:
            return
        for name in alert.send_to:
            if name not in targets:
                hint = did_you_mean(name, targets) or _ALERT_TARGETS_HINT
                raise alert_fault(alert, f"send_to names {name}, which is not a target.", hint)

    return check_with_targets


_CheckEndpoint = Callable[[Endpoint, Sequence[Stream]], object]

_PASSED_ENDPOINT_DIGESTS_FILE: Final = "checked.json"
_ENDPOINT_DIGEST_HEX_DIGITS: Final = 32
# A larger file of digests is not read, and all endpoints are compiled. Even with the maximum number of endpoints, the
# file is several times smaller.
_MAX_DIGESTS_FILE_BYTES: Final = 4 * 2**20


class CachingEndpointChecker:
    """Checks endpoints, except those that passed an earlier check.

    `write_passed_digests` stores which endpoints have passed, so that the next start of the service skips them.
    """

    def __init__(self, folder: Path, target: str, check: _CheckEndpoint, code: str | None = None) -> None:
        self._digests_file = folder / _PASSED_ENDPOINT_DIGESTS_FILE
        self._check_endpoint = check
        self._compiler_version = f"{target} {code or compiler_version()}"
        self._stored_digests = _read_endpoint_digests(self._digests_file)
        self._passed_digests: set[str] = set()

    def check(self, endpoint: Endpoint, streams: Sequence[Stream]) -> None:
        """Compile the endpoint unless it compiled before; raise BadEndpointFile with the position of an error."""
        digest = self._endpoint_digest(endpoint, streams)
        if digest not in self._stored_digests:
            self._check_endpoint(endpoint, streams)
        self._passed_digests.add(digest)

    def write_passed_digests(self) -> None:
        """Store the digests of endpoints that passed.

        A failed write is ignored, because it only makes the next start slower.
        """
        if self._passed_digests == self._stored_digests:
            return
        with suppress(OSError):
            write_durably(self._digests_file, json.dumps(sorted(self._passed_digests)).encode())
            self._stored_digests = set(self._passed_digests)

    def _endpoint_digest(self, endpoint: Endpoint, streams: Sequence[Stream]) -> str:
        names = sorted(possibly_read_table_names(endpoint, [stream.name for stream in streams]))
        depends_on = (self._compiler_version, endpoint.name, endpoint.revision, names)
        return sha256(json.dumps(depends_on).encode()).hexdigest()[:_ENDPOINT_DIGEST_HEX_DIGITS]


def compiler_version() -> str:
    """Return a text that changes with the code of cordwood and with the versions of the SQL parser and of Python."""
    digest = sha256()
    root = Path(cordwood.__file__).parent
    for entry in sorted(_source_file_stats(root)):
        digest.update(repr(entry).encode())
    return f"{digest.hexdigest()} {version('sqlglot')} {sys.version}"


def _source_file_stats(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the path, size and modification time of each source file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _source_file_stats(Path(entry.path))
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _read_endpoint_digests(file: Path) -> set[str]:
    with suppress(OSError, msgspec.MsgspecError):
        if file.stat().st_size <= _MAX_DIGESTS_FILE_BYTES:
            return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    return set()
