"""Schemathesis fuzzes every described operation. It finds no internal error, and responses match the document."""

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

# Schemathesis does not check whether input is accepted. A schema cannot express that a query must parse, and the
# service ignores undeclared parameters. Other tests check which input is accepted.
load_all_checks()
APPLIED_CHECKS: Any = CHECKS.get_by_names(
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
def encode_value(_: Any, value: Any) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)


@pytest.fixture(scope="module")
def openapi_schema(service: Service) -> Any:
    """Return the loaded document, after sending an event to every stream."""
    for stream in service.client.get("/api/sources").json():
        event = {"event_message": "m", "project": "default", "metadata": {"project": "default", "level": "info"}}
        assert service.send(stream["name"], [event]).status_code == 200
    return schemathesis.openapi.from_url(f"{service.url}/api/openapi.json")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
def test_every_operation_matches_its_description(openapi_schema: Any, mode: GenerationMode) -> None:
    operations = [result.ok() for result in openapi_schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        # The answer to a followed query does not end. test_openapi_statuses.py checks its status.
        if not operation.path.startswith("/api/endpoints/tail/"):
            _check(operation, mode)


def _check(operation: Any, mode: GenerationMode) -> None:
    # For an operation that is not offered, the document describes status 501, which is otherwise a server error.
    checks = [
        applied
        for applied in APPLIED_CHECKS
        if applied.__name__ != "not_a_server_error" or "501" not in operation.responses.status_codes
    ]

    @settings(max_examples=12, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check_case(case: Case[Any]) -> None:
        case.call_and_validate(headers={"X-API-KEY": PRIVATE}, checks=checks, timeout=30)

    try:
        check_case()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "what is allowed can always be made; where all is, nothing is forbidden"


def test_the_service_is_healthy_after_fuzzing(service: Service) -> None:
    assert httpx.get(f"{service.url}/health").status_code == 200
    assert "bug.internal" not in service.output.read_text()
