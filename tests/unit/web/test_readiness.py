"""Readiness: probes that tell load balancers whether the service answers queries."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from cordwood.access import Authenticator
from cordwood.errors import Fault, OutOfDisk, ServiceBusy
from cordwood.ingest.accept import Intake
from cordwood.model.definitions import Stream
from cordwood.observe.observation import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import QueryService, QueryServiceDependencies
from cordwood.serve.backup_archive import BackupService
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.tails import TailLimits, TailService
from cordwood.web.asgi import Response
from cordwood.web.operations import show_health, show_liveness, show_readiness
from cordwood.web.services import Lifecycle, Services
from tests.fakes.engines import ScriptedEngine
from tests.unit.serve.harness import UNCACHED_ENDPOINT, ServeHarness, make_request, run_with_harness, until

STREAM = Stream("postgres.logs", UUID(int=1))


def status_and_body(response: Response) -> tuple[int, dict[str, Any]]:
    assert isinstance(response.body, bytes)
    return response.status, msgspec.json.decode(response.body)


def open_routes(harness: ServeHarness) -> Lifecycle:
    lifecycle = Lifecycle()
    intake = Intake(harness.engine, lambda: harness.now_us)
    no_target: Any = None
    access, backups = Authenticator(no_target), BackupService(harness.engine, bytes, bytes, no_target, "1")
    tails = TailService(harness.answers, intake, TailLimits())
    lifecycle.set_ready(Services(harness.answers, intake, access, harness.catalog, backups, tails, no_target))
    return lifecycle


def test_the_service_is_ready_while_queries_are_answered() -> None:
    async def test(harness: ServeHarness) -> None:
        lifecycle = open_routes(harness)
        assert status_and_body(show_readiness(lifecycle)) == (200, {"status": "ok", "endpoints": 2, "streams": 0})
        assert status_and_body(show_health(lifecycle)) == (200, {"status": "ok", "endpoints": 2, "streams": 0})

    run_with_harness(test)


def test_the_service_is_not_ready_while_no_query_gets_a_slot() -> None:
    async def test(harness: ServeHarness) -> None:
        lifecycle = open_routes(harness)
        harness.engine.hold()
        stuck = [
            asyncio.ensure_future(harness.answers.answer(make_request(UNCACHED_ENDPOINT, project=str(n))))
            for n in range(4)
        ]
        await until(lambda: harness.engine.question_count == 4)
        assert status_and_body(show_readiness(lifecycle))[0] == 200, (
            "all slots are taken, and no query has waited in vain"
        )
        with pytest.raises(ServiceBusy):
            await harness.answers.answer(make_request(UNCACHED_ENDPOINT, project="another"))
        for probe in (show_readiness, show_health):
            status, body = status_and_body(probe(lifecycle))
            assert (status, body["status"]) == (503, "not_ready")
            assert body["reasons"][0].startswith("No query has got a slot for ")
        assert show_liveness().status == 200
        harness.engine.release()
        await asyncio.gather(*stuck)
        assert status_and_body(show_readiness(lifecycle))[0] == 200

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4, queue_seconds=0.05)))


def test_an_unready_component_is_reported_with_its_reason() -> None:
    async def test(harness: ServeHarness) -> None:
        lifecycle = open_routes(harness)
        lifecycle.set_component_unready_reason("engine", "The engine is being replaced.")
        assert status_and_body(show_readiness(lifecycle)) == (
            503,
            {"status": "not_ready", "reasons": ["The engine is being replaced."]},
        )
        lifecycle.set_component_unready_reason("engine", None)
        assert status_and_body(show_readiness(lifecycle))[0] == 200

    run_with_harness(test)


class FullDisk(ScriptedEngine):
    """An engine that refuses events while its disk is full."""

    is_full = True

    def append(self, batches: Any) -> Any:
        if self.is_full:
            raise OutOfDisk("The disk is full.")
        return super().append(batches)


def test_a_full_disk_is_reported_as_degraded_and_ready() -> None:
    async def send(lifecycle: Lifecycle) -> None:
        assert lifecycle.services is not None
        await lifecycle.services.intake.ingest_body(STREAM, "application/json", b'[{"event_message": "x"}]')

    async def test(harness: ServeHarness) -> None:
        engine = FullDisk()
        harness.answers = QueryService(
            QueryServiceDependencies(harness.catalog, engine, MemoryAnswerCache(1000), Observer()),
            harness.limits,
            lambda: harness.now_us,
        )
        harness.engine = engine
        lifecycle = open_routes(harness)
        with pytest.raises(Fault):
            await send(lifecycle)
        status, body = status_and_body(show_readiness(lifecycle))
        assert (status, body["degraded"]) == (200, ["Events are not stored: The disk is full."])
        engine.is_full = False
        await send(lifecycle)
        assert "degraded" not in status_and_body(show_readiness(lifecycle))[1]

    run_with_harness(test)
