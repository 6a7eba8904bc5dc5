"""schemathesis asks every described operation what its schemas allow and forbid: no failure, and answers as described."""

from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.journey.conftest import PRIVATE, Service

# What a schema cannot say (a query must parse, a pattern must be RE2's) is refused with a status that is described;
# what nobody declared is let pass: so what is accepted and what is not is for the other journeys to hold.
load_all_checks()
HELD: Any = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "ignored_auth",
    ]
)


@schemathesis.serializer(
    "application/x-ndjson", "text/csv", "application/x-protobuf", "application/bert", "application/vnd.fdo.journal"
)
def in_bytes(_: Any, value: Any) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)


@pytest.fixture(scope="module")
def described(service: Service) -> Any:
    """With an event in every stream, so that there is something to answer."""
    for stream in service.client.get("/api/sources").json():
        event = {"event_message": "m", "project": "default", "metadata": {"project": "default", "level": "info"}}
        assert service.send(stream["name"], [event]).status_code == 200
    return schemathesis.openapi.from_url(f"{service.url}/api/openapi.json")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
def test_every_operation_answers_as_it_is_described(described: Any, mode: GenerationMode) -> None:
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        # A followed query has no end; test_http_description_holds.py checks the status of many.
        if not operation.path.startswith("/api/endpoints/tail/"):
            _hold(operation, mode)


def _hold(operation: Any, mode: GenerationMode) -> None:
    # An operation that is described as not offered answers 501, which counts as a failure of the server otherwise.
    checks = [
        one for one in HELD if one.__name__ != "not_a_server_error" or "501" not in operation.responses.status_codes
    ]

    @settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Case[Any]) -> None:
        case.call_and_validate(headers={"X-API-KEY": PRIVATE}, checks=checks, timeout=30)

    try:
        holds()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "what is allowed can always be made; where all is, nothing is forbidden"


def test_the_service_lives_after_all_this(service: Service) -> None:
    assert httpx.get(f"{service.url}/health").status_code == 200
    assert "bug.internal" not in service.output.read_text()
