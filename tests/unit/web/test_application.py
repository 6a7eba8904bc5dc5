"""The HTTP application around every route: lifecycle states, faults with their statuses, and observations."""

import asyncio

import msgspec
import pytest

from cordwood.errors import (
    BacklogFull,
    EngineFailed,
    EngineUnreachable,
    Fault,
    OutOfDisk,
    OutOfMemory,
    RequestRateExceeded,
    ServiceBusy,
    TooManyRows,
)
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import BugFound, Observer, RequestAnswered
from cordwood.web.asgi import Request, Response
from cordwood.web.http_application import HttpApplication, SendMemoryBudget
from cordwood.web.ingest import render_otlp_error
from cordwood.web.problems import logflare_error_response
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle, WebOptions
from tests.fakes.callers import call, http_scope
from tests.unit.serve.harness import NoteList


def make_application(lifecycle: Lifecycle | None = None) -> HttpApplication:
    return create_application(lifecycle or Lifecycle(), Observer(), WebOptions(), Metrics("1"))


QUERY_PATH = "/api/endpoints/query/logs.all?project=default"


@pytest.mark.parametrize("address", [QUERY_PATH, "/health", "/ready", "/readyz"])
def test_while_starting_all_but_liveness_is_503_with_retry_after(address: str) -> None:
    answer = call(make_application(), "GET", address)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("address", ["/livez/", "/metrics/", "/docs/", "/api/logs/", QUERY_PATH.replace("?", "/?")])
def test_a_trailing_slash_is_ignored(address: str) -> None:
    answer, plain = (
        call(make_application(), "PATCH", path) for path in (address, address.replace("/?", "?").removesuffix("/"))
    )
    assert answer.status == 405
    assert answer.headers["allow"] == plain.headers["allow"]


@pytest.mark.parametrize("address", ["/docs//", "//docs", "/explorer/"])
def test_other_empty_path_segments_are_not_found(address: str) -> None:
    assert call(make_application(), "GET", address).status == 404


@pytest.mark.parametrize("address", ["/livez", "/metrics"])
def test_while_starting_liveness_and_metrics_are_200(address: str) -> None:
    assert call(make_application(), "GET", address).status == 200


def test_while_starting_a_shipper_gets_503_instead_of_401() -> None:
    answer = call(make_application(), "POST", "/api/logs?source_name=postgres.logs")
    assert answer.status == 503
    assert answer.json()["error"]["status"] == "service.starting"


def test_while_draining_new_requests_are_refused_and_readiness_fails() -> None:
    lifecycle = Lifecycle()
    lifecycle.start_draining()
    answer = call(make_application(lifecycle), "GET", QUERY_PATH)
    assert (answer.status, answer.json()["error"]["status"]) == (503, "service.draining")
    assert call(make_application(lifecycle), "GET", "/ready").json() == {"status": "not_ready"}
    assert call(make_application(lifecycle), "GET", "/livez").status == 200


async def failing_handler(_: Request) -> Response:
    raise ZeroDivisionError("the secret of the engine")


def empty_request(_: Request) -> Response | None:
    return None


def test_an_internal_error_is_500_with_an_incident_id_and_its_trace_only_in_the_log() -> None:
    notes = NoteList()
    broken = HttpApplication(
        failing_handler, empty_request, Observer([notes]), SendMemoryBudget(1000), logflare_errors=False
    )
    answer = call(broken, "GET", "/", **{"X-Request-Id": "incident-7"})
    assert (answer.status, answer.json()["error"]["status"]) == (500, "bug.internal")
    assert "incident-7" in answer.json()["error"]["hint"]
    assert b"secret" not in answer.body
    [bug] = [note for note in notes.all if isinstance(note, BugFound)]
    assert bug.incident == "incident-7"
    assert "ZeroDivisionError" in bug.trace


def test_the_error_of_a_failed_engine_is_only_in_the_log_with_the_incident_id() -> None:
    async def fails(_: Request) -> Response:
        raise EngineFailed("The engine failed.") from RuntimeError("INTERNAL Error: secret")

    notes = NoteList()
    failed = HttpApplication(fails, empty_request, Observer([notes]), SendMemoryBudget(1000), logflare_errors=False)
    answer = call(failed, "GET", "/", **{"X-Request-Id": "incident-8"})
    assert (answer.status, answer.json()["error"]["status"]) == (500, "engine.failed")
    assert "incident-8" in answer.json()["error"]["hint"]
    assert b"secret" not in answer.body
    [bug] = [note for note in notes.all if isinstance(note, BugFound)]
    assert (bug.incident, "INTERNAL Error: secret" in bug.trace) == ("incident-8", True)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (BacklogFull("Too much waits.", retry_after=2.5), 429),
        (OutOfDisk("The disk is full."), 507),
        (OutOfMemory("The query needs more memory than there is."), 503),
        (EngineUnreachable("The engine is away."), 503),
        (EngineFailed("The engine broke."), 500),
        (TooManyRows("There are more rows than that."), 422),
    ],
)
def test_each_fault_has_its_status(fault: Exception, status: int) -> None:
    async def refusing_handler(_: Request) -> Response:
        raise fault

    answer = call(
        HttpApplication(refusing_handler, empty_request, Observer(), SendMemoryBudget(1000), logflare_errors=False),
        "POST",
        "/",
    )
    assert answer.status == status
    if status == 429:
        assert answer.headers["retry-after"] == "3"


def test_every_request_is_observed_with_its_route_and_status() -> None:
    notes = NoteList()
    application_with_notes = create_application(Lifecycle(), Observer([notes]), WebOptions(), Metrics("1"))
    call(application_with_notes, "GET", "/nothing")
    [request] = [note for note in notes.all if isinstance(note, RequestAnswered)]
    assert (request.route, request.status, request.fault) == ("unknown", 404, "request.unknown-route")


def test_other_asgi_scopes_are_ignored() -> None:
    async def receive_nothing() -> dict[str, object]:
        raise AssertionError

    async def unresponsive_application(_: object) -> None:
        raise AssertionError

    asyncio.run(make_application()({"type": "lifespan"}, receive_nothing, unresponsive_application))


def test_problems_are_json_and_not_stored() -> None:
    answer = call(make_application(), "GET", "/nothing")
    assert msgspec.json.decode(answer.body)["title"]
    assert answer.headers["cache-control"] == "no-store"


def test_in_the_logflare_shape_retriable_faults_keep_their_status() -> None:
    assert masked_status(RequestRateExceeded("Too fast.", retry_after=7)) == (429, "7")
    assert masked_status(ServiceBusy("Too many wait.", retry_after=4.5)) == (503, "5")
    assert masked_status(OutOfMemory("Too much.", retry_after=2)) == (200, "2")
    assert masked_status(TooManyRows("Too many.")) == (200, "")


def masked_status(fault: Fault) -> tuple[int, str]:
    response = logflare_error_response(fault)
    assert response is not None
    return response.status, dict(response.headers).get(b"retry-after", b"").decode()


@pytest.mark.parametrize(
    ("fault", "status", "seconds"),
    [
        (OutOfDisk("The disk is full.", retry_after=30), 503, "30"),
        (OutOfMemory("Too much."), 503, "1"),
        (BacklogFull("Too much waits.", retry_after=3), 429, "3"),
        (EngineUnreachable("The engine is away.", retry_after=5), 503, "5"),
        (EngineFailed("It broke."), 500, ""),
    ],
)
def test_retriable_faults_have_a_status_that_exporters_retry(fault: Fault, status: int, seconds: str) -> None:
    """Answer 429 or 503, because an exporter drops its data after any status other than 429, 502, 503 and 504."""
    response = render_otlp_error(fault, Request(http_scope("POST", "/v1/logs"), _receive_forever))
    assert (response.status, dict(response.headers).get(b"retry-after", b"").decode()) == (status, seconds)


async def _receive_forever() -> dict[str, object]:
    raise AssertionError


def test_while_starting_an_otlp_exporter_gets_protobuf() -> None:
    answer = call(make_application(), "POST", "/v1/logs", **{"Content-Type": "application/x-protobuf"})
    assert (answer.status, answer.headers["content-type"], answer.headers["retry-after"]) == (
        503,
        "application/x-protobuf",
        "1",
    )
    assert b"The service is starting." in answer.body
