"""Routes for operating the service: health and metrics (which need no key), status, running queries, and backups."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

import cordwood
from cordwood.access import may_see_all_requests, require_query_permission
from cordwood.engines.engine import QueryProgress, StreamStats
from cordwood.model.key import Caller
from cordwood.observe import metrics as prometheus
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Observer
from cordwood.serve.query_executor import EngineRun, RunningQuery, ServiceLoad
from cordwood.web.asgi import NO_STORE_HEADER, Request, Response, no_store_json_response
from cordwood.web.credentials import audit_backup, identify_caller, require_private_caller, require_unrestricted_caller
from cordwood.web.services import Lifecycle, LifecyclePhase, Services

RETRY_AFTER_HEADER = (b"retry-after", b"1")
STATUS_BY_PHASE = {
    LifecyclePhase.STARTING: "coming_up",
    LifecyclePhase.READY: "ok",
    LifecyclePhase.DRAINING: "draining",
}


def show_health(lifecycle: Lifecycle) -> Response:
    """Report the health in Logflare's format. The status is 200 once streams and endpoints are loaded."""
    return _readiness_response(lifecycle, STATUS_BY_PHASE[lifecycle.phase])


def show_readiness(lifecycle: Lifecycle) -> Response:
    return _readiness_response(lifecycle, "ok" if lifecycle.phase is LifecyclePhase.READY else "not_ready")


def show_liveness() -> Response:
    return Response(200, [(b"content-type", b"text/plain; charset=utf-8"), NO_STORE_HEADER], b"ok\n")


def show_metrics(counted: Metrics) -> Response:
    return Response(200, [(b"content-type", prometheus.METRICS_CONTENT_TYPE), NO_STORE_HEADER], counted.format_text())


def _readiness_response(lifecycle: Lifecycle, status: str) -> Response:
    """If the service can answer queries, return status 200 and its degraded parts, else status 503 and the reasons."""
    if lifecycle.phase is not LifecyclePhase.READY or lifecycle.services is None:
        return no_store_json_response({"status": status}, 503, RETRY_AFTER_HEADER)
    reasons = lifecycle.unready_reasons()
    if reasons:
        return no_store_json_response({"status": "not_ready", "reasons": reasons}, 503, RETRY_AFTER_HEADER)
    body: dict[str, object] = {
        "status": status,
        "endpoints": len(lifecycle.services.catalog.endpoints()),
        "streams": len(lifecycle.services.catalog.streams()),
    }
    degraded = lifecycle.degraded_reasons()
    return no_store_json_response(body | {"degraded": degraded} if degraded else body)


async def show_status(request: Request, services: Services, metrics: Metrics) -> Response:
    caller, _ = require_private_caller(request, services)
    load, facts, sizes = (
        services.query_service.current_load(),
        await services.query_service.stream_stats(),
        await services.query_service.estimated_bytes_by_stream(),
    )
    streams = {
        stream.name: _stream_json(
            facts.get(stream.name), sizes.get(stream.name), metrics.arrival_rate_counter.events_per_second(stream.name)
        )
        for stream in services.catalog.streams()
    }
    status = {
        "version": cordwood.__version__,
        "engine": services.query_service.engine_name,
        "memory": {
            "bytes": _read_metric(metrics, "cordwood_memory_bytes"),
            "ceiling_bytes": _read_metric(metrics, "cordwood_memory_ceiling_bytes"),
        },
        "cache": {
            "bytes": load.cache_bytes,
            "budget_bytes": load.cache_budget_bytes,
            "requests": metrics.cache_outcome_counts(),
        },
        "queries": _query_load_json(load, caller),
        "engine_process": {
            "ends": metrics.engine_end_counts(),
            "quarantined_queries": services.query_service.quarantined_query_count(),
        },
        "streams": streams,
    }
    return no_store_json_response(status)


def _query_load_json(load: ServiceLoad, caller: Caller) -> dict[str, Any]:
    return {
        "places": load.slot_count,
        "waiting": load.queued_count,
        "under_way": [_run_json(run) for run in load.current_runs if _may_see_query_run(caller, run)],
        "slowest": [_run_json(run) for run in load.slowest_runs if _may_see_query_run(caller, run)],
    }


def _may_see_query_run(caller: Caller, run: EngineRun) -> bool:
    """Return whether the status report may show a query's run to the caller.

    Queries of other keys may contain values that a restricted key must not see.
    """
    return run.key_id == caller.key_id or not (caller.pins or caller.redact_always)


def _run_json(run: EngineRun) -> dict[str, Any]:
    return {
        "endpoint": run.endpoint_name,
        "key": run.key_id,
        "language": run.language or None,
        "text": run.query_text or None,
        "began": int(run.started_at * 1_000_000),
        "seconds": round(run.duration_seconds, 6),
        "outcome": run.outcome or None,
    }


def _stream_json(facts: StreamStats | None, size: int | None, per_second: float) -> Mapping[str, Any]:
    return {
        "events": facts.events if facts else 0,
        "newest": facts.newest_us if facts else None,
        "bytes": size,
        "events_per_second": round(per_second, 3),
    }


def _read_metric(metrics: Metrics, name: str) -> int | None:
    read = metrics.gauge_readers.get(name)
    return None if read is None else int(read())


async def list_queries(request: Request, services: Services) -> Response:
    """List the caller's running queries, or for an unrestricted private key those of all callers."""
    caller, _ = identify_caller(request, services)
    require_query_permission(caller, None)
    services.query_service.charge_request(caller)
    sees_all = may_see_all_requests(caller)
    running = services.query_service.running_queries(None if sees_all else caller)
    return no_store_json_response({"queries": [running_query_json(query, has_rows=sees_all) for query in running]})


def running_query_json(query: RunningQuery, *, has_rows: bool) -> dict[str, Any]:
    """Return a running query as JSON fields.

    If `has_rows` is true, the fields include how many rows the query has read and has to read. These numbers count rows
    of all projects, so they are only for callers who may read all events.
    """
    progress = query.progress if has_rows else QueryProgress(fraction_done=query.progress.fraction_done)
    return {
        "id": query.request_id or None,
        "endpoint": query.endpoint_name,
        "seconds": round(query.elapsed_seconds, 3),
        "rows_read": progress.rows_read,
        "rows_total": progress.rows_total,
        "part": None if progress.fraction_done is None else round(progress.fraction_done, 4),
    }


async def send_backup(request: Request, services: Services, observer: Observer) -> Response:
    require_unrestricted_caller(request, services, "This key is restricted, and a backup contains everything.")
    headers = [(b"content-type", b"application/x-tar"), NO_STORE_HEADER]
    chunks = _ClosableChunks(services.backup_service.archive_chunks())
    first = await asyncio.to_thread(chunks.next_chunk)
    audit_backup(observer, request)
    return Response(200, headers, _chunks_until_closed(first, chunks))


class _ClosableChunks:
    """Chunks of a generator. While a thread reads a chunk, another thread may call `close`, which waits for it."""

    def __init__(self, chunks: Generator[bytes, None, None]) -> None:
        self._chunks = chunks
        self._lock = threading.Lock()

    def next_chunk(self) -> bytes | None:
        with self._lock:
            return next(self._chunks, None)

    def close(self) -> None:
        with self._lock:
            self._chunks.close()


async def _chunks_until_closed(first: bytes | None, chunks: _ClosableChunks) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a backup, and close them at the end, even if the client interrupts the download.

    Closing the chunks deletes the files of the backup's snapshot.
    """
    try:
        chunk = first
        while chunk is not None:
            yield chunk
            chunk = await asyncio.to_thread(chunks.next_chunk)
    finally:
        await asyncio.to_thread(chunks.close)
