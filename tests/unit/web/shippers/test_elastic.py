"""Elasticsearch's bulk API: the stored events, their streams, and the responses."""

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest

from cordwood.errors import BacklogFull, BodyTooLarge, EngineUnreachable, Fault, OutOfDisk, RequestTooSlow
from cordwood.observe.observation import ActionAudited, Observer
from cordwood.web.asgi import Request
from cordwood.web.shippers.elastic import render_error
from tests.fakes.callers import http_scope
from tests.unit.web.shippers.conftest import ShipperResponse, ShipperSite

CLIENT_HEADERS = {
    "user_agent": "elasticsearch-py/9.0",
    "accept": "application/vnd.elasticsearch+json; compatible-with=9",
}


def send_bulk(site: ShipperSite, *lines: object, path: str = "/_bulk", **options: str) -> Any:
    answered = send(site, *lines, path=path, **options)
    assert answered.status == 200, answered.body
    return answered.json()


def send(site: ShipperSite, *lines: object, path: str = "/_bulk", **options: str) -> ShipperResponse:
    body = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return site.send("POST", path, body, content_type="application/x-ndjson", **options)


def statuses(response: Any) -> list[int]:
    return [outcome["status"] for item in response["items"] for outcome in item.values()]


def test_a_document_becomes_an_event_with_its_id_in_the_stream_of_its_index(site: ShipperSite) -> None:
    document = {
        "@timestamp": "2024-05-01T10:00:00.5Z",
        "message": "a document",
        "log": {"level": "info"},
        "host.name": "h1",
        "project": "p1",
    }
    response = send_bulk(site, {"index": {"_index": "nginx-2024.05", "_id": "doc-1"}}, document)
    (item,) = response["items"]
    assert item == {
        "index": {"_index": "nginx-2024.05", "_id": "doc-1", "_version": 1, "result": "created", "status": 201}
    }
    assert response["errors"] is False
    (stored,) = site.events("edge", "a document")
    assert (stored["id"], stored["timestamp"], stored["project"]) == ("doc-1", 1714557600500000, "p1")
    assert stored["metadata"] == {"log": {"level": "info"}, "host.name": "h1", "project": "p1"}


def test_a_second_create_is_a_conflict_and_a_second_index_changes_nothing(site: ShipperSite) -> None:
    create, document = {"create": {"_id": "twice"}}, {"message": "twice"}
    response = send_bulk(
        site, create, document, create, document, {"index": {"_id": "twice"}}, document, path="/app/_bulk"
    )
    assert (statuses(response), response["errors"]) == ([201, 409, 200], True)
    assert response["items"][1]["create"]["error"]["type"] == "version_conflict_engine_exception"
    assert response["items"][2]["index"]["result"] == "noop"
    assert site.messages("app", "twice") == ["twice"]


def test_items_that_cannot_be_stored_have_errors_and_the_others_are_stored(site: ShipperSite) -> None:
    response = send_bulk(
        site,
        *({"create": {"_index": "app"}}, {"message": "beside errors"}),
        *({"update": {"_index": "app", "_id": "x"}}, {"doc": {}}),
        {"delete": {"_index": "app", "_id": "x"}},
        *({"create": {"_index": "app"}}, "{broken"),
        *({"create": {"_index": "app"}}, "7"),
        *({"create": {"_index": "unknown"}}, {"message": "x"}),
        *({"create": {"_index": "gone"}}, {"message": "x"}),
        *({"create": {"_index": "app", "_id": "i" * 513}}, {"message": "x"}),
        *({"create": {"_index": "app"}}, '{"d":' + "[" * 101 + "]" * 101 + "}"),
        *({"index": {"_index": "app"}}, {"message": "beside errors"}),
    )
    assert statuses(response) == [201, 400, 400, 400, 400, 404, 404, 400, 400, 201]
    reasons = [outcome.get("error", {}).get("reason", "") for item in response["items"] for outcome in item.values()]
    assert "[update] is not supported" in reasons[1]
    assert reasons[3].endswith("The document is in the quarantine.")
    assert "no such index [unknown]" in reasons[5]
    assert "ingest.stream_map" in reasons[5]
    assert "'nowhere'" in reasons[6]
    assert site.messages("app", "beside errors") == ["beside errors"] * 2
    assert {item["index"] for item in site.quarantined() if item["form"] in ("elastic", "events")} == {3, 4, 8}


def test_a_stream_above_its_rate_refuses_only_its_items(site: ShipperSite) -> None:
    slow = ({"create": {"_index": "slow-1"}}, {"message": "slow"})
    assert statuses(send_bulk(site, *slow, *slow)) == [201, 201]
    response = send_bulk(site, *slow, {"create": {"_index": "app"}}, {"message": "beside slow"})
    assert statuses(response) == [429, 201]
    assert response["items"][0]["create"]["error"]["type"] == "es_rejected_execution_exception"
    assert site.messages("app", "beside slow") == ["beside slow"]


def test_actions_without_an_index_need_a_stream_in_the_request(site: ShipperSite) -> None:
    lines: tuple[object, ...] = ("", {"create": {}}, " ", {"log": "from a container"}, "")
    assert statuses(send_bulk(site, *lines)) == [404]
    assert statuses(send_bulk(site, *lines, path="/elastic/_bulk?source_name=app")) == [201]
    assert statuses(send_bulk(site, *lines, x_source="app")) == [201]
    assert site.messages("app", "from a container") == ["from a container"] * 2


def test_a_document_without_a_message_has_its_json_as_the_message(site: ShipperSite) -> None:
    assert statuses(send_bulk(site, {"create": {}}, {"k": [1, {"a": None}]}, path="/app/_bulk")) == [201]
    assert site.messages("app", '{"k"') == ['{"k":[1, {"a": null}]}']


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "no action"),
        (["{"], "Malformed action/metadata line [1]"),
        (["[]"], "Malformed action/metadata line [1]"),
        ([{"upsert": {}}], "expected field [create]"),
        ([{"create": {}}], "has no document"),
        ([{"create": {}}, {"message": "never stored"}, {"message": "no action"}], "line [3]"),
        (["[" * 3000], "Malformed"),
        ([{"create": {"_index": 7}}, {}], "Malformed"),
    ],
)
def test_a_body_with_a_malformed_action_is_refused_as_a_whole(
    site: ShipperSite, lines: list[object], reason: str
) -> None:
    answered = send(site, *lines, path="/app/_bulk")
    assert answered.status == 400
    response = answered.json()
    assert response["status"] == 400
    assert reason in response["error"]["reason"]
    assert response["error"]["root_cause"][0]["type"] == "illegal_argument_exception"
    assert site.messages("app", "never stored") == []


def test_invalid_utf_8_and_unpaired_surrogates_are_replaced(site: ShipperSite) -> None:
    body = b'{"create":{}}\n{"message":"odd \xff text"}\n{"create":{}}\n{"message":"odd \\ud800 text"}'
    answered = site.send("POST", "/app/_bulk", body, content_type="application/json")
    assert statuses(answered.json()) == [201, 201]
    assert site.messages("app", "odd ") == ["odd \ufffd text"] * 2


def test_filter_path_selects_the_fields_of_the_response(site: ShipperSite) -> None:
    lines = ({"create": {"_index": "app"}}, {"message": "m"}, {"delete": {"_id": "x"}})
    path = "/_bulk?filter_path=errors,items.*.error,items.*.status&refresh=true&timeout=1m"
    response = send_bulk(site, *lines, path=path)
    assert response.keys() == {"errors", "items"}
    assert [set(outcome) for item in response["items"] for outcome in item.values()] == [
        {"status"},
        {"status", "error"},
    ]
    assert send_bulk(site, *lines, path="/_bulk?filter_path=errors").keys() == {"errors"}
    assert send_bulk(site, *lines, path="/_bulk?filter_path=-took").keys() == {"took", "errors", "items"}
    assert len(send_bulk(site, *lines, path="/_bulk?filter_path=took,items")["items"]) == 2


def test_the_response_to_a_short_body_is_bounded(site: ShipperSite) -> None:
    response = send_bulk(site, *[{"delete": {}}] * 3000)
    assert response["errors"] is True
    assert statuses(response) == [400] * 3000
    assert len(json.dumps(response)) < 500_000
    assert send(site, *[{"delete": {}}] * 50_001).status == 413
    assert send(site, {"delete": {}}, path=f"/{'i' * 256}/_bulk").status == 400


def test_more_items_than_a_body_may_hold_are_refused_before_they_are_decoded(site: ShipperSite) -> None:
    body = gzip.compress(b'{"delete":{}}\n' * 400_000)
    answered = site.send("POST", "/app/_bulk", body, content_encoding="gzip")
    assert (answered.status, answered.json()["error"]["type"]) == (413, "content_too_long_exception")


def test_a_body_with_a_too_large_content_length_is_refused_unread(site: ShipperSite) -> None:
    answered = site.send("POST", "/_bulk", "{}", content_length=f"{17 * 2**20}")
    assert (answered.status, answered.json()["error"]["type"]) == (413, "content_too_long_exception")


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_keys_are_read_from_the_authorization_schemes_of_the_protocol(site: ShipperSite) -> None:
    key, lines = site.create_key(scopes="ingest"), ({"create": {"_index": "app"}}, {"message": "keyed"})
    forms = (
        f"Basic {encode_base64(f'elastic:{key}')}",
        f"ApiKey {encode_base64(f'id:{key}')}",
        f"apikey {key}",
        f"Bearer {key}",
    )
    for form in (*forms, f"Basic {encode_base64(f'{key}:')}"):
        assert send(site, *lines, key="", authorization=form).status == 200, form
    assert len(site.messages("app", "keyed")) == 5
    for wrong in (
        "",
        "Basic",
        "Basic !",
        f"Basic {encode_base64('a:b')}",
        f"ApiKey {encode_base64('a:b')}",
        "Digest x",
    ):
        answered = send(site, *lines, key="", authorization=wrong)
        assert answered.status == 401
        assert answered.json()["error"]["type"] == "security_exception"
        assert answered.headers["x-elastic-product"] == "Elasticsearch"
    assert site.send("GET", "/api/status", key="", authorization=forms[0]).status == 401
    assert send(site, *lines, key=site.create_key(scopes="query")).status == 403


def test_scopes_and_pins_of_a_key_apply(site: ShipperSite, monkeypatch: pytest.MonkeyPatch) -> None:
    observations: list[object] = []
    monkeypatch.setattr(Observer, "record", lambda _, observation: observations.append(observation))
    lines = ({"create": {"_index": "app"}}, {"message": "may not"}, {"create": {"_index": "edge"}}, {"message": "may"})
    response = send_bulk(site, *lines, key=site.create_key(scopes="ingest:source:edge"))
    assert statuses(response) == [403, 201]
    assert [item.action for item in observations if isinstance(item, ActionAudited)] == ["key.created", "refused"]
    pinned = site.create_key(scopes="ingest", pins={"project": "mine"})
    response = send_bulk(site, {"create": {}}, {"message": "pin", "project": "theirs"}, path="/app/_bulk", key=pinned)
    assert statuses(response) == [400]
    assert "pinned" in response["items"][0]["create"]["error"]["reason"]


def test_a_too_large_document_is_quarantined_truncated(site: ShipperSite) -> None:
    response = send_bulk(site, {"create": {}}, {"message": "large", "d": "x" * 2**21}, path="/app/_bulk")
    assert statuses(response) == [400]
    (item,) = [item for item in site.quarantined() if "larger" in item["reason"]]
    assert (item["form"], item["stream"], item["is_cut"]) == ("elastic", "app", True)


@pytest.mark.parametrize("path", ["/", "/elastic", "/elastic/"])
def test_clients_get_a_version_at_the_root_and_the_prefix(site: ShipperSite, path: str) -> None:
    answered = site.send("GET", path, **CLIENT_HEADERS)
    assert answered.json()["version"]["number"].startswith("8.")
    assert answered.headers["x-elastic-product"] == "Elasticsearch"
    assert answered.headers["content-type"] == CLIENT_HEADERS["accept"]
    assert site.send("HEAD", path, **CLIENT_HEADERS).body == b""
    assert site.send("GET", path, key="", **CLIENT_HEADERS).status == 401


@pytest.mark.parametrize(
    "agent", ["Mozilla/5.0", "curl/8.0", "Mozilla/5.0 (compatible; elastic)", "python-requests/2", ""]
)
def test_browsers_get_the_explorer(site: ShipperSite, agent: str) -> None:
    accept = "text/html,*/*" if "elastic" in agent else "*/*"
    assert site.send("GET", "/", user_agent=agent, accept=accept).body.startswith(b"<!doctype html>")


CLIENT_CHECKS: Mapping[str, Any] = {
    "_license?human=false": lambda response: response["license"]["status"] == "active",
    "_xpack": lambda response: response["features"]["ilm"]["enabled"] is False,
    "_xpack/license": lambda response: response["license"]["type"] == "basic",
    "_cluster/health?wait_for_status=yellow": lambda response: response["status"] == "green",
    "_ilm/policy/filebeat": lambda response: "policy" in response["filebeat"],
    "_template/logstash": lambda response: response["logstash"]["index_patterns"] == ["logstash*"],
    "_index_template/filebeat-8.19.0": lambda response: response["index_templates"][0]["name"] == "filebeat-8.19.0",
    "_component_template/a/b": lambda response: response["component_templates"][0]["name"] == "a/b",
    "_ingest/pipeline/p": lambda response: response["p"]["processors"] == [],
    "_nodes/http": lambda response: response["nodes"]["cordwood"]["http"]["publish_address"] == "logs.example:9200",
    "_nodes/_all/http": lambda response: response["_nodes"]["total"] == 1,
}


@pytest.mark.parametrize("check", CLIENT_CHECKS)
@pytest.mark.parametrize("prefix", ["/", "/elastic/"])
def test_the_preliminary_checks_of_clients_are_answered(site: ShipperSite, prefix: str, check: str) -> None:
    answered = site.send("GET", f"{prefix}{check}", host="logs.example:9200")
    assert (answered.status, CLIENT_CHECKS[check](answered.json())) == (200, True)
    assert site.send("GET", f"{prefix}{check}", key="").status == 401


def test_templates_are_accepted_and_pipelines_refused(site: ShipperSite) -> None:
    for path in ("/_index_template/x", "/elastic/_ilm/policy/x", "/_template/x"):
        assert site.send("PUT", path, "{}").json() == {"acknowledged": True}
    answered = site.send("PUT", "/_ingest/pipeline/x", "{}")
    assert (answered.status, answered.json()["status"]) == (405, 405)
    assert "PUT" not in answered.headers["allow"]
    assert site.send("GET", "/_cat/templates/logs").body == b"logs [logs*] 0\n"
    assert site.send("GET", "/_cat/health").headers["content-type"].startswith("text/plain")
    assert site.send("GET", "/elastic/_bulk").status == 405
    for path in ("/elastic/_search", "/_cat/unknown", "/elastic/app/_doc"):
        assert site.send("GET", path).json()["error"]["type"] == "resource_not_found_exception"


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        (OutOfDisk("full"), 429, "cluster_block_exception"),
        (BacklogFull("busy", retry_after=3), 429, "es_rejected_execution_exception"),
        (EngineUnreachable("away"), 503, "unavailable_shards_exception"),
        (RequestTooSlow("slow"), 503, "unavailable_shards_exception"),
        (BodyTooLarge("large"), 413, "content_too_long_exception"),
    ],
)
def test_only_temporary_faults_have_a_retriable_status(fault: Fault, status: int, kind: str) -> None:
    async def receive() -> dict[str, object]:
        return {}

    answered = render_error(fault, Request(http_scope("POST", "/_bulk"), receive))
    assert answered.status == status
    assert json.loads(bytes(answered.body))["error"]["type"] == kind  # type: ignore[arg-type]
