"""The OpenAPI document describes the answers about alerts, and an endpoint's alert can be sent back unchanged."""

import copy
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.journey.conftest import Service, start_service
from tests.journey.watched_databases import UNREACHABLE_TARGET, create_endpoint
from tests.waiting import until

ENDPOINT_NAME = "errors.now"
ALERT = {
    "name": "too many errors",
    "condition": "n >= 1",
    "every": "1s",
    "for": "0s",
    "repeat": "90s",
    "group_by": ["database"],
    "severity": "critical",
    "text": 'n is {n}: "{database}" */ {{x}}\nand more',
    "send_to": ["nowhere"],
    "parameters": {"since": "now-10m"},
    "redact": True,
}
ENDPOINT = {
    "name": ENDPOINT_NAME,
    "query": "select m.database, count(*) as n from `postgres.logs` as t cross join unnest(t.metadata) as m"
    " where t.timestamp >= @since group by 1",
    "parameters": [{"name": "since", "type": "timestamp", "required": True}],
    "alert": ALERT,
}


@pytest.fixture(scope="module")
def service_with_alert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = start_service(tmp_path_factory.mktemp("alerts") / "data", env=UNREACHABLE_TARGET)
    create_endpoint(service, ENDPOINT)
    service.send("postgres.logs", [{"event_message": "e", "metadata": {"database": "orders"}}])
    until(lambda: bool(service.client.get("/api/alerts").json()["targets"][0].get("failures")))
    yield service
    service.stop()


def answer_schema(service: Service, path: str, verb: str, status: str) -> Any:
    """Return the schema of an answer together with the components that it references."""
    document = service.client.get("/api/openapi.json").json()
    answered = document["paths"][path][verb]["responses"][status]
    schema = copy.deepcopy(answered["content"]["application/json"]["schema"])
    return {
        **without_additional_properties(schema),
        "components": {"schemas": without_additional_properties(document["components"]["schemas"])},
    }


def without_additional_properties(schema: Any) -> Any:
    """Return the schema with `additionalProperties` set to false for all of its objects."""
    if isinstance(schema, list):
        return [without_additional_properties(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**closed, **{name: without_additional_properties(element) for name, element in schema.items()}}


@pytest.mark.parametrize(
    ("path", "verb", "status", "body"),
    [
        ("/api/alerts", "get", "200", None),
        ("/api/alerts/history", "get", "200", None),
        ("/api/alerts/{name_or_id}/preview", "get", "200", None),
        ("/api/alerts/targets/{name}/test", "post", "200", None),
        ("/api/alerts/silences", "post", "201", {"labels": {"database": "orders"}, "for": "1h", "comment": "c"}),
        ("/api/alerts/silences", "get", "200", None),
        ("/api/endpoints", "get", "200", None),
    ],
)
def test_an_answer_matches_its_schema(
    service_with_alert: Service, path: str, verb: str, status: str, body: object
) -> None:
    address = path.format(name_or_id=ALERT["name"], name="nowhere") if "{" in path else path
    answer = service_with_alert.client.request(verb, address, json=body)
    assert str(answer.status_code) == status, answer.text
    body_or_text = answer.json()
    assert (
        body_or_text.get("history", body_or_text.get("silences", True))
        if isinstance(body_or_text, dict)
        else body_or_text
    )
    jsonschema.validate(body_or_text, answer_schema(service_with_alert, path, verb, status))


def test_the_alert_of_an_endpoint_is_returned_as_it_was_sent(service_with_alert: Service) -> None:
    definition = service_with_alert.client.get(f"/api/endpoints/{ENDPOINT_NAME}").json()
    # The API omits `for`, because it is sent with its default value.
    assert definition["alert"] == {name: value for name, value in ALERT.items() if name != "for"}
    stored_definition = service_with_alert.client.put(f"/api/endpoints/{ENDPOINT_NAME}", json=definition).json()
    assert (stored_definition["revision"], stored_definition["alert"]) == (definition["revision"], definition["alert"])
    assert service_with_alert.client.get("/api/endpoints/logs.all").json()["alert"] is None


@pytest.mark.parametrize("empty_alert", [None, {}])
def test_an_alert_is_removed_with_null_or_an_empty_object(service_with_alert: Service, empty_alert: object) -> None:
    fields = {"name": "removed", "query": "select 1 as n", "alert": {"condition": "rows", "every": "1h"}}
    assert service_with_alert.client.post("/api/endpoints", json=fields).json()["alert"] == {
        "condition": "rows",
        "every": "1h",
        "severity": "warning",
    }
    changed = service_with_alert.client.put("/api/endpoints/removed", json={"alert": empty_alert})
    assert (changed.status_code, changed.json()["alert"]) == (200, None)
    names = [alert["name"] for alert in service_with_alert.client.get("/api/alerts").json()["alerts"]]
    assert names == [ALERT["name"]]
    assert service_with_alert.client.delete("/api/endpoints/removed").status_code == 204


def test_an_invalid_alert_is_refused_with_its_field(service_with_alert: Service) -> None:
    refused = service_with_alert.client.put(
        f"/api/endpoints/{ENDPOINT_NAME}", json={"alert": {**ALERT, "condition": "n >"}}
    )
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["alert"])


def test_alerts_have_metrics(service_with_alert: Service) -> None:
    body_or_text = httpx.get(f"{service_with_alert.url}/metrics").text
    assert "cordwood_alerts_firing 1" in body_or_text
    assert "cordwood_alerts_pending 0" in body_or_text
    assert f'cordwood_alert_evaluations_total{{alert="{ALERT["name"]}",outcome="ok"}}' in body_or_text
    assert 'cordwood_alert_notifications_total{target="nowhere",outcome="failed"}' in body_or_text
