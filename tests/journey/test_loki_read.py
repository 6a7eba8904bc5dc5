"""Loki's read API, queried as Grafana and logcli do, in the documented wire format."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, start_service

SECOND_NS = 10**9
NOW_SECONDS = int(time.time())
# START_NS is the time of the first entry. END_NS is after the last entry.
START_NS = (NOW_SECONDS - 600) * SECOND_NS
END_NS = NOW_SECONDS * SECOND_NS
PAYMENT_LINE = '{"status": 500, "took": "2s", "path": "/pay", "user": {"id": 7}}'
FAST_LINE = '{"status": 200, "took": "150ms", "path": "/pay"}'
PLAIN_LINE = "plain text of jane@example.com"


class Loki:
    """A client of Loki's API with one key."""

    def __init__(self, client: httpx.Client, base: str = "") -> None:
        self.client = client
        self.base = f"{base}/loki/api/v1/"

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.client.get(self.base + path, params=parameters)

    def data(self, path: str, **parameters: Any) -> Any:
        answer = self.get(path, **parameters)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["status"] == "success"
        return body["data"]

    def lines(self, query: str, **parameters: Any) -> list[str]:
        data = self.data("query_range", query=query, **parameters)
        assert data["resultType"] == "streams"
        entries = sorted(entry for stream in data["result"] for entry in stream["values"])
        return [line for _, line, *_ in entries]

    def refusal(self, path: str, status: int = 400, **parameters: Any) -> str:
        answer = self.get(path, **parameters)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        return answer.text


def streams_to_push(project: str) -> list[dict[str, Any]]:
    labels = {"app": "checkout", "project": project}
    return [
        {
            "stream": labels | {"level": "error"},
            "values": [[str(START_NS), PAYMENT_LINE, {"trace_id": f"trace of {project}"}]],
        },
        {
            "stream": labels | {"level": "info"},
            "values": [[str(START_NS + SECOND_NS), FAST_LINE], [str(START_NS + 61 * SECOND_NS), PLAIN_LINE]],
        },
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service with entries of two projects in Loki's format, and with an event of one of these projects."""
    env = {"CORDWOOD_INGEST_DEFAULT_STREAM": "postgres.logs"}
    started = start_service(tmp_path_factory.mktemp("loki") / "data", env=env)
    for project in ("shop", "other"):
        pushed = started.client.post("/loki/api/v1/push", json={"streams": streams_to_push(project)})
        assert pushed.status_code == 204, pushed.text
    event = {
        "timestamp": START_NS // 1000 + 1,
        "event_message": "GET /rest",
        "project": "shop",
        "metadata": {"response": {"status_code": 404}, "request": {"path": "/rest"}},
    }
    assert started.send("cloudflare.logs.prod", [event]).status_code == 200
    yield started
    started.stop()


def create_key(service: Service, **terms: Any) -> str:
    body = service.client.post("/api/access-tokens", json={"scopes": "query", **terms})
    assert body.status_code == 201, body.text
    return str(body.json()["token"])


@pytest.fixture(scope="module")
def pinned(service: Service) -> Iterator[Loki]:
    """Return a client with a pinned key, sent as Grafana sends it.

    The key is in basic auth, and the service ignores the tenant header.
    """
    auth = ("any user", create_key(service, pins={"project": "shop"}))
    with httpx.Client(base_url=service.url, auth=auth, headers={"X-Scope-OrgID": "other"}, timeout=60) as client:
        yield Loki(client)


@pytest.fixture
def private(service: Service) -> Loki:
    return Loki(service.client)


def test_log_lines_are_grouped_by_stream_newest_first(pinned: Loki) -> None:
    data = pinned.data("query_range", query='{app="checkout"}', start=START_NS, end=END_NS)
    labels = {"app": "checkout", "project": "shop", "service_name": "checkout", "source_name": "postgres_logs"}
    assert data == {
        "resultType": "streams",
        "result": [
            {
                "stream": labels | {"level": "info"},
                "values": [[str(START_NS + 61 * SECOND_NS), PLAIN_LINE], [str(START_NS + SECOND_NS), FAST_LINE]],
            },
            {
                "stream": labels | {"level": "error", "trace_id": "trace of shop"},
                "values": [[str(START_NS), PAYMENT_LINE]],
            },
        ],
        "stats": {},
    }
    forward = pinned.data("query_range", query='{app="checkout"}', direction="FORWARD", limit=2)
    assert [stream["values"] for stream in forward["result"]] == [
        [[str(START_NS), PAYMENT_LINE]],
        [[str(START_NS + SECOND_NS), FAST_LINE]],
    ]


def test_grafanas_categorized_labels_are_not_part_of_streams(pinned: Loki) -> None:
    flags = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
    parameters: dict[str, str] = {"query": '{level="error"} | json'}
    answer = pinned.client.get("/loki/api/v1/query_range", params=parameters, headers=flags)
    data = answer.json()["data"]
    assert data["encodingFlags"] == ["categorize-labels"]
    (stream,) = data["result"]
    assert "trace_id" not in stream["stream"]
    ((_, _, categories),) = stream["values"]
    assert categories == {
        "structuredMetadata": {"trace_id": "trace of shop"},
        "parsed": {"path": "/pay", "status": "500", "took": "2s", "user_id": "7"},
    }
    assert "X-Loki-Response-Encoding-Flags" in answer.headers["vary"]


def test_line_format_renders_labels(pinned: Loki) -> None:
    template = '| json | line_format "{{.path}}: {{ .took }} {{.nothing}}({{.app}}, {{.trace_id}})" | status = 500'
    assert pinned.lines('{app="checkout"} ' + template) == ["/pay: 2s (checkout, trace of shop)"]
    assert pinned.lines('{app="checkout"} |= "plain" | line_format "<{{__line__}}>"') == [f"<{PLAIN_LINE}>"]


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        (str(START_NS), str(START_NS + SECOND_NS + 1), 2),
        (str(START_NS), str(START_NS + SECOND_NS), 1),
        (str(START_NS // SECOND_NS), str(START_NS // SECOND_NS + 2), 2),
        (f"{START_NS // SECOND_NS}.5", f"{START_NS // SECOND_NS + 1}.000001", 1),
        (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_NS // SECOND_NS)),
            time.strftime("%Y-%m-%dT%H:%M:%S.5+00:00", time.gmtime(START_NS // SECOND_NS)),
            1,
        ),
    ],
    # The ids are fixed, because the processes of pytest-xdist must collect the same ids, and START_NS differs between
    # them.
    ids=["nanoseconds", "nanoseconds, end excluded", "seconds", "parts of seconds", "RFC 3339"],
)
def test_times_are_nanoseconds_seconds_or_rfc_3339(pinned: Loki, start: str, end: str, count: int) -> None:
    assert len(pinned.lines('{app="checkout"}', start=start, end=end)) == count


def test_the_default_range_is_the_last_hour_or_since(pinned: Loki) -> None:
    assert len(pinned.lines('{app="checkout"}')) == 3
    assert pinned.lines('{app="checkout"}', since="1m") == []


def test_a_matrix_has_times_in_seconds_and_values_as_strings(pinned: Loki) -> None:
    start = START_NS // SECOND_NS
    query = 'sum by (level) (count_over_time({app="checkout"}[1m]))'
    data = pinned.data("query_range", query=query, start=start, end=start + 120, step="60s")
    assert data == {
        "resultType": "matrix",
        "result": [
            {"metric": {"level": "error"}, "values": [[start, "1"]]},
            {"metric": {"level": "info"}, "values": [[start + 60, "1"], [start + 120, "1"]]},
        ],
        "stats": {},
    }


def test_a_vector_has_one_time(pinned: Loki) -> None:
    query = 'sum(rate({app="checkout"} | json | took > 1s [10m]))'
    data = pinned.data("query", query=query, time=START_NS + SECOND_NS)
    expected = {"metric": {}, "value": [START_NS // SECOND_NS + 1, "0.0016666666666666668"]}
    assert data == {"resultType": "vector", "result": [expected], "stats": {}}


@pytest.mark.parametrize(
    ("function", "levels"),
    [
        ("sort(%s)", [None, "info", "error"]),
        ("sort_desc(%s)", ["error", "info", None]),
        ("topk(2, %s)", ["error", "info"]),
        ("bottomk(2, %s)", [None, "info"]),
    ],
)
def test_a_sorted_vector_is_in_the_order_of_its_values(pinned: Loki, function: str, levels: list[str | None]) -> None:
    query = function % 'sum by (level) (bytes_over_time({service_name=~".+"} != "plain" [1h]))'
    assert [series["metric"].get("level") for series in pinned.data("query", query=query)["result"]] == levels


def test_grafanas_health_check_of_the_data_source_is_answered(pinned: Loki) -> None:
    data = pinned.data("query", query="vector(1)+vector(1)", time=START_NS)
    assert data == {
        "resultType": "vector",
        "result": [{"metric": {}, "value": [START_NS // SECOND_NS, "2"]}],
        "stats": {},
    }
    assert pinned.data("query", query="2 * 3", time=4)["result"] == [4, "6"]


def test_labels_values_and_streams_are_listed(pinned: Loki) -> None:
    assert pinned.data("labels") == ["app", "level", "project", "service_name", "source_name"]
    assert pinned.data("label/service_name/values") == ["checkout", "edge_logs"]
    assert pinned.data("label/level/values", query='{app="checkout"}') == ["error", "info"]
    assert pinned.data("label/level/values", start=END_NS - SECOND_NS) == []
    assert pinned.data("label/nothing/values") == []
    listed = pinned.client.post("/loki/api/v1/series", data={"match[]": ['{level="info"}', '{app=""}']}).json()["data"]
    labels = {"app": "checkout", "project": "shop", "service_name": "checkout", "source_name": "postgres_logs"}
    assert sorted(listed, key=str) == [
        labels | {"level": "info"},
        {"service_name": "edge_logs", "source_name": "edge_logs"},
    ]


def test_volumes_are_in_bytes_in_descending_order(pinned: Loki) -> None:
    size = sum(map(len, (PAYMENT_LINE, FAST_LINE, PLAIN_LINE)))
    data = pinned.data("index/volume", query='{service_name=~".+"}', start=START_NS - 1000, end=END_NS)
    assert data["resultType"] == "vector"
    assert [(series["metric"], series["value"][1]) for series in data["result"]] == [
        ({"service_name": "checkout"}, str(size)),
        ({"service_name": "edge_logs"}, "9"),
    ]
    limited = pinned.data("index/volume", query='{service_name=~".+"}', targetLabels="level,app", limit=1)
    assert [series["metric"] for series in limited["result"]] == [{"app": "checkout", "level": "info"}]
    ranged = pinned.data("index/volume_range", query='{app="checkout"}', step="1h", start=END_NS, end=END_NS)
    assert ranged["resultType"] == "matrix"
    assert ranged["result"] == [{"metric": {"app": "checkout"}, "values": [[NOW_SECONDS, str(size)]]}]
    counts = pinned.get("index/stats", query='{app="checkout"}').json()
    assert counts == {"streams": 2, "chunks": 2, "entries": 3, "bytes": size}


def test_requests_of_logs_drilldown_are_answered(pinned: Loki) -> None:
    detected = {
        label["label"]: label["cardinality"] for label in pinned.get("detected_labels").json()["detectedLabels"]
    }
    assert detected == {"app": 1, "level": 2, "project": 1, "service_name": 2, "source_name": 2}
    fields = pinned.get("detected_fields", query='{app="checkout"}').json()["fields"]
    assert {field["label"]: (field["type"], field["parsers"]) for field in fields} == {
        "path": ("string", ["json"]),
        "status": ("int", ["json"]),
        "took": ("duration", ["json"]),
        "trace_id": ("string", None),
        "user_id": ("int", ["json"]),
    }
    assert next(field["jsonPath"] for field in fields if field["label"] == "user_id") == ["user", "id"]
    query = '{service_name="checkout"} | json | logfmt | drop __error__, __error_details__ | path!=""'
    assert pinned.lines(query) == [PAYMENT_LINE, FAST_LINE]
    counted = f"sum by (detected_level) (count_over_time({query} [1h]))"
    assert {series["metric"]["detected_level"] for series in pinned.data("query", query=counted)["result"]} == {
        "error",
        "info",
    }


def test_the_values_of_a_detected_field_are_those_of_the_newest_lines(pinned: Loki) -> None:
    parameters = {"query": '{app="checkout"}', "start": START_NS, "end": END_NS}
    answer = pinned.get("detected_field/took/values", **parameters)
    assert answer.json() == {"values": ["150ms", "2s"], "limit": 1000}
    below_endpoint = Loki(pinned.client, "/api/endpoints/logs.all")
    for path, more, values in (
        ("detected_field/trace_id/values", {}, ["trace of shop"]),
        ("detected_field/took/values", {"limit": 1}, ["150ms"]),
        ("detected_field/took/values", {"line_limit": 1}, []),
        ("detected_field/nothing/values", {}, []),
        ("detected_field/path/values", {"query": '{app="checkout"} | json | status = 500'}, ["/pay"]),
    ):
        for client in (pinned, below_endpoint):
            assert client.get(path, **(parameters | more)).json()["values"] == values, (path, more)
    assert "query is missing" in pinned.refusal("detected_field/took/values")
    assert "not the name of a label" in pinned.refusal("detected_field/a-b/values", query="{}")


def test_errors_are_plain_text_with_a_position(pinned: Loki) -> None:
    assert pinned.refusal("query_range", query='{app="checkout"') == "1:16: The query ends where , is expected."
    assert pinned.refusal("query_range", query='{app=~"["}').startswith(
        "1:7: This is not a valid regular expression (RE2)"
    )
    assert pinned.refusal("query_range", query='{app="x"} | label_format y=z').startswith("1:13: The stage label_")
    assert "query is missing" in pinned.refusal("query_range")
    assert "instant" in pinned.refusal("query", query='{app="x"}')
    assert "match[] is missing" in pinned.refusal("series")
    for name, value in (
        ("limit", "0"),
        ("limit", "5001"),
        ("limit", "1001"),
        ("limit", "x"),
        ("direction", "up"),
        ("start", "yesterday"),
        ("start", "2026-13-01T00:00:00Z"),
        ("end", "-1"),
        ("interval", "5m"),
        ("since", "5 parsecs"),
    ):
        assert name in pinned.refusal("query_range", 400, **{"query": '{app="x"}', name: value})
    assert "end is before start" in pinned.refusal("query_range", query='{app="x"}', start=END_NS, end=START_NS)
    counted = 'count_over_time({app="x"}[1m])'
    for step in ("0", "-1", "x", "1e99"):
        assert "step" in pinned.refusal("query_range", query=counted, step=step)
    assert "11,000 steps" in pinned.refusal("query_range", query=counted, step="0.01")
    assert "volume" in pinned.refusal("index/volume", query='{app="x"} |= "y"').lower()
    for path in ("tail", "patterns", "format_query"):
        assert "is not offered" in pinned.refusal(path, 501, query='{app="x"}')


def test_a_pinned_key_reads_only_its_own_project(pinned: Loki) -> None:
    every_stream = '{service_name=~".+"}'
    requests: list[tuple[str, dict[str, Any]]] = [
        ("query_range", {"query": every_stream}),
        ("query_range", {"query": '{project=~"other|shop"}'}),
        ("query_range", {"query": '{project!="shop"}'}),
        ("query", {"query": "sum by (project, trace_id) (count_over_time({project=~`.+`}[1h]))"}),
        ("series", {"match[]": every_stream}),
        ("detected_labels", {}),
        ("detected_fields", {"query": every_stream}),
        ("label/project/values", {}),
        ("label/trace_id/values", {}),
        ("detected_field/trace_id/values", {"query": every_stream}),
        ("index/volume", {"query": every_stream, "targetLabels": "project,trace_id"}),
        ("index/stats", {"query": every_stream}),
    ]
    for path, parameters in requests:
        answer = pinned.get(path, **parameters)
        assert answer.status_code == 200, answer.text
        assert "other" not in answer.text, path
    assert pinned.get("index/stats", query=every_stream).json()["entries"] == 4
    for parameters in ({"query": '{project="other"}'}, {"query": every_stream, "project": "other"}):
        assert "pinned to project = 'shop'" in pinned.refusal("query_range", 403, **parameters)
    assert len(pinned.lines('{project="shop"}')) == 4
    assert pinned.refusal("query_range", 400, query='{project="shop"}', project="other")


def test_a_private_key_reads_every_stream_and_a_query_key_needs_a_project(service: Service, private: Loki) -> None:
    assert len(private.lines('{app="checkout"}')) == 6
    assert len(private.lines('{source_name="postgres.logs", project="other"}')) == 3
    assert private.lines('{source_name="cloudflare.logs.prod"} | response_status_code >= 400') == ["GET /rest"]
    assert "no parameter project" in private.refusal("query_range", query='{app="checkout"}', project="shop")
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": create_key(service)}, timeout=60) as client:
        unpinned = Loki(client)
        assert "needs the parameter project" in unpinned.refusal("query_range", query='{app="checkout"}')
        assert len(unpinned.lines('{app="checkout", project="other"}')) == 3
        assert len(unpinned.lines('{app="checkout"}', project="other")) == 3


def test_the_path_may_name_an_endpoint(service: Service) -> None:
    base_path = Loki(service.client, "/api/endpoints/logs.all")
    assert len(base_path.lines('{app="checkout", project="shop"}')) == 3
    assert base_path.data("label/service_name/values", project="shop") == ["checkout", "edge_logs"]
    assert "no endpoint" in Loki(service.client, "/api/endpoints/nothing").refusal("labels", 404)
    response = service.client.post("/api/endpoints", json={"name": "plain", "query": "select 1 as one"})
    assert response.status_code == 201, response.text
    assert "no sandbox" in Loki(service.client, "/api/endpoints/plain").refusal("labels")
    assert "ClickHouse SQL" in Loki(service.client, "/api/endpoints/logs.all.otel").refusal("labels")
    assert "no nonsense" in base_path.refusal("nonsense", 404)


def test_keys_are_accepted_as_loki_s_clients_send_them(service: Service) -> None:
    token = create_key(service, pins={"project": "shop"})
    basic = base64.b64encode(f"tenant:{token}".encode()).decode()
    accepted = ({"Authorization": f"Bearer {token}"}, {"Authorization": f"Basic {basic}"}, {"X-API-KEY": token})
    for headers in accepted:
        assert httpx.get(f"{service.url}/loki/api/v1/labels", headers=headers).status_code == 200
    for headers, status in (({}, 401), ({"X-API-KEY": "wrong"}, 401), ({"X-API-KEY": PUBLIC}, 403)):
        answer = httpx.get(f"{service.url}/loki/api/v1/labels", headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
        assert ("www-authenticate" in answer.headers) == (status == 401)


def test_redaction_covers_lines_fields_and_values(service: Service) -> None:
    token = create_key(service, pins={"project": "shop"}, redact=True)
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": token}, timeout=60) as client:
        redacted = Loki(client)
        lines = redacted.lines('{app="checkout"} |= "plain"')
        assert len(lines) == 1
        assert "jane@example.com" not in lines[0]
        assert redacted.lines('{app="checkout"} |= "jane@example.com"') == []
        values = redacted.data("label/service_name/values")
        assert values == ["checkout", "edge_logs"]


def test_parameters_are_accepted_as_a_form_in_the_body(pinned: Loki) -> None:
    sent = {"query": '{app="checkout"}', "limit": "1"}
    answer = pinned.client.post("/loki/api/v1/query_range", data=sent)
    assert [stream["values"][0][1] for stream in answer.json()["data"]["result"]] == [PLAIN_LINE]
    refused = pinned.client.post(
        "/loki/api/v1/query_range", content=json.dumps(sent), headers={"content-type": "application/json"}
    )
    assert (refused.status_code, refused.text[:35]) == (400, "The parameters are not a form. Send")


def test_too_many_series_are_an_error(service: Service) -> None:
    events = [{"event_message": "x", "metadata": {"request": f"r{number}"}} for number in range(1001)]
    assert service.send("gotrue.logs.prod", events).status_code == 200
    private = Loki(service.client)
    counted = 'sum by (request) (count_over_time({source_name="gotrue.logs.prod"}[1h]))'
    assert "more than 1000 series" in private.refusal("query", 400, query=counted)
    assert len(private.data("query", query=f"topk(3, {counted})")["result"]) == 3
    assert PRIVATE not in str(private.data("labels"))
