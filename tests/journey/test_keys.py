"""Keys: creation, rotation and revocation while a service runs, and enforcement of their terms."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start

SECRET = "a-secret-of-more-than-thirty-two-bytes"
PUBLIC_ENDPOINT = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c03"


def run_keys(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cordwood", "keys", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False)


def create_key(service: Service, *arguments: str) -> str:
    """Run `cordwood keys create` on the data folder of the running service, and return the new key."""
    result = run_keys("create", *arguments, "--data-dir", str(service.data_dir))
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def send_query(service: Service, key: str | None, endpoint: str = "logs.all", **parameters: str) -> httpx.Response:
    headers = {"X-API-KEY": key} if key else {}
    return httpx.get(f"{service.url}/api/endpoints/query/{endpoint}", params=parameters, headers=headers)


def send_event(service: Service, key: str, stream: str, event: Mapping[str, object]) -> httpx.Response:
    address = f"{service.url}/api/logs?source_name={stream}"
    return httpx.post(address, json=dict(event), headers={"X-API-KEY": key})


def refusal_message(answer: httpx.Response, status: int = 403) -> str:
    assert answer.status_code == status, answer.text
    message: str = answer.json()["error"]["message"]
    return message


def event(project: str, message: str) -> dict[str, object]:
    return {"event_message": message, "project": project, "metadata": {"request": {"path": "/rest/v1/x"}}}


def test_a_new_key_is_printed_to_stdout_and_its_terms_to_stderr(service: Service) -> None:
    made_one = run_keys(
        *("create", "--scope", "query", "--endpoint", "logs.all", "--pin", "project=acme", "--expires", "90d"),
        *("--rate", "10/s", "--redact", "always", "--note", "for a dashboard", "--data-dir", str(service.data_dir)),
    )
    assert re.fullmatch(r"cw_[\w-]{43}\n", made_one.stdout)
    received = ("query:endpoint:logs.all", "project=acme", "10/s", "always", "for a dashboard")
    assert all(text in made_one.stderr for text in received)
    assert made_one.stdout.strip() not in made_one.stderr


def test_creation_and_revocation_take_effect_within_a_second(service: Service) -> None:
    key = create_key(service, "--scope", "query")
    time.sleep(1)
    assert send_query(service, key, project="x").status_code == 200
    (line,) = [line for line in json.loads(listed_keys(service)) if line["last use"] and line["scopes"] == "query"]
    run_keys("revoke", str(line["id"]), "--data-dir", str(service.data_dir))
    time.sleep(1)
    assert send_query(service, key, project="x").status_code == 401


def listed_keys(service: Service) -> str:
    return run_keys("list", "--format", "json", "--data-dir", str(service.data_dir)).stdout


def test_a_listing_contains_no_secret(service: Service) -> None:
    key = create_key(service, "--scope", "ingest", "--note", "listed")
    table = run_keys("list", "--data-dir", str(service.data_dir)).stdout
    assert "listed" in table
    assert key not in listed_keys(service) + table


def test_a_listing_shows_the_terms_and_last_use_of_a_key(service: Service) -> None:
    key = create_key(
        service,
        "--scope",
        "query:endpoint:logs.all",
        "--pin",
        "project=told",
        "--expires",
        "90d",
        "--rate",
        "10/s",
        "--note",
        "terms",
    )
    assert send_query(service, key).status_code == 200
    (line,) = [line for line in json.loads(listed_keys(service)) if line["note"] == "terms"]
    assert (line["scopes"], line["pins"], line["rate"]) == ("query:endpoint:logs.all", {"project": "told"}, "10/s")
    assert isinstance(line["id"], int)
    assert line["expires"] > line["last use"] >= line["created"]


def test_keys_are_created_rotated_and_revoked_over_http(service: Service) -> None:
    service_options = ("--url", service.url, "--key", PRIVATE)
    old_key = run_keys("create", "--scope", "query", "--note", "far away", *service_options).stdout.strip()
    (line,) = [
        value
        for value in json.loads(run_keys("list", "--format", "json", *service_options).stdout)
        if value["note"] == "far away"
    ]
    rotated = run_keys("rotate", str(line["id"]), *service_options)
    new_key = rotated.stdout.strip()
    assert (
        send_query(service, old_key, project="x").status_code,
        send_query(service, new_key, project="x").status_code,
    ) == (
        401,
        200,
    )
    (line,) = [
        value
        for value in json.loads(run_keys("list", "--format", "json", *service_options).stdout)
        if value["note"] == "far away"
    ]
    assert run_keys("revoke", str(line["id"]), *service_options).returncode == 0
    assert send_query(service, new_key, project="x").status_code == 401


def test_a_key_created_without_a_service_is_valid_after_its_start(start: Start, tmp_path: Path) -> None:
    created = run_keys("create", "--scope", "query", "--data-dir", str(tmp_path / "data"))
    assert created.returncode == 0
    assert send_query(start(), created.stdout.strip(), project="x").status_code == 200


def test_a_start_without_a_valid_private_key_prints_a_hint(start: Start, tmp_path: Path) -> None:
    hint = "No private key is in force"
    without = start(env={"CORDWOOD_KEYS_PRIVATE": ""}, data_dir=tmp_path / "without")
    assert hint in without.output.read_text()
    assert run_keys("create", "--scope", "private", "--data-dir", str(without.data_dir)).returncode == 0
    without.stop()
    assert hint not in start(env={"CORDWOOD_KEYS_PRIVATE": ""}, data_dir=without.data_dir).stop_and_read()
    assert hint not in start(data_dir=tmp_path / "with").stop_and_read()


@pytest.mark.parametrize("action", [("list",), ("revoke", "1"), ("rotate", "1")])
def test_a_missing_data_folder_is_an_error(tmp_path: Path, action: tuple[str, ...]) -> None:
    result = run_keys(*action, "--data-dir", str(tmp_path / "slip"))
    assert result.returncode == 1
    assert "the data folder does not exist" in result.stderr
    assert not (tmp_path / "slip").exists()


def test_key_commands_over_http_need_a_private_key(service: Service) -> None:
    with_private = run_keys("create", "--scope", "query", "--url", service.url, "--key", PRIVATE)
    assert send_query(service, with_private.stdout.strip(), project="x").status_code == 200
    with_public = run_keys("create", "--scope", "query", CORDWOOD_URL=service.url, CORDWOOD_KEY=PUBLIC)
    assert (with_public.returncode, with_public.stdout) == (1, "")
    assert "needs a private key" in with_public.stderr


def test_a_rotated_key_expires_at_once_or_after_its_grace_period(service: Service) -> None:
    for grace, status in ((["--grace", "10m"], 200), ([], 401)):
        old_key = create_key(service, "--scope", "query", "--note", f"rotated {status}")
        (line,) = [line for line in json.loads(listed_keys(service)) if line["note"] == f"rotated {status}"]
        rotated = run_keys("rotate", str(line["id"]), *grace, "--data-dir", str(service.data_dir))
        assert send_query(service, rotated.stdout.strip(), project="x").status_code == 200
        time.sleep(1)
        assert send_query(service, old_key, project="x").status_code == status


def test_an_expired_key_is_refused(service: Service) -> None:
    key = create_key(service, "--scope", "query", "--expires", "2s")
    assert send_query(service, key, project="x").status_code == 200
    time.sleep(2.1)
    assert send_query(service, key, project="x").status_code == 401


def test_a_scope_permits_only_its_endpoint_or_stream(service: Service) -> None:
    key = create_key(service, "--scope", "query", "--endpoint", "logs.all", "--scope", "ingest:source:postgres.logs")
    assert send_query(service, key, project="x").status_code == 200
    assert "usage.api-counts" in refusal_message(
        send_query(service, key, "usage.api-counts", project="x", interval="daily")
    )
    assert send_event(service, key, "postgres.logs", event("x", "y")).status_code == 200
    assert "gotrue.logs.prod" in refusal_message(send_event(service, key, "gotrue.logs.prod", event("x", "y")))


def test_a_pinned_parameter_cannot_be_changed(service: Service) -> None:
    for project in ("pinned", "other"):
        service.send("cloudflare.logs.prod", [event(project, f"of {project}")])
    key = create_key(service, "--scope", "query", "--endpoint", "logs.all", "--pin", "project=pinned")
    for parameters in ({}, {"project": "pinned"}):
        rows = send_query(service, key, **parameters).json()["result"]
        assert [row["event_message"] for row in rows] == ["of pinned"]
    message = refusal_message(send_query(service, key, project="other"))
    assert "project" in message
    assert "'other'" in message
    assert refusal_message(send_query(service, key, project=""))


@pytest.mark.parametrize(
    "sql",
    [
        "select event_message from edge_logs",
        "select event_message from edge_logs where 1 = 1 or @project = 'other'",
        "select event_message from (select * from edge_logs) union all select event_message from edge_logs",
        "with other as (select * from edge_logs) select event_message from other",
    ],
)
def test_a_sandbox_query_cannot_bypass_a_pin(service: Service, sql: str) -> None:
    for project in ("held", "foreign"):
        service.send("cloudflare.logs.prod", [event(project, f"of {project}")])
    key = create_key(service, "--scope", "query", "--pin", "project=held")
    received = {row["event_message"] for row in send_query(service, key, sql=sql).json()["result"]}
    assert received == {"of held"}
    body = {"sql": sql, "project": "foreign"}
    answer = httpx.post(f"{service.url}/api/endpoints/query/logs.all", json=body, headers={"X-API-KEY": key})
    assert refusal_message(answer)


def test_cached_answers_are_separate_for_each_pin(service: Service) -> None:
    for project in ("one", "two"):
        service.send("cloudflare.logs.prod", [event(project, "x")] * (1 if project == "one" else 2))
    counted = {
        project: send_query(
            service,
            create_key(service, "--scope", "query", "--pin", f"project=^https://{project}/"),
            "usage.api-counts",
            interval="daily",
        )
        for project in ("one", "two")
    }
    assert [answer.json()["result"][0]["total_rest_requests"] for answer in counted.values()] == [1, 2]


def test_a_pin_on_a_pattern_without_anchors_prints_a_warning(service: Service) -> None:
    warned = run_keys("create", "--scope", "query", "--pin", "project=acme", "--data-dir", str(service.data_dir))
    assert "Warning: project is a pattern in usage.api-counts" in warned.stderr
    anchored = run_keys(
        "create", "--scope", "query", "--pin", "project=^https://acme$", "--data-dir", str(service.data_dir)
    )
    assert "Warning" not in anchored.stderr


def test_a_pinned_ingest_key_sets_the_project_and_quarantines_others(service: Service) -> None:
    key = create_key(service, "--scope", "ingest", "--pin", "project=stamped")
    unstamped = {"event_message": "unstamped", "metadata": {}}
    assert send_event(service, key, "cloudflare.logs.prod", unstamped).json()["accepted"] == 1
    claimed = send_event(service, key, "cloudflare.logs.prod", event("other-project", "claimed"))
    assert claimed.json()["quarantined"] == 1 if claimed.status_code == 200 else claimed.status_code in (400, 403)
    assert [row["event_message"] for row in service.rows("logs.all", project="stamped")] == ["unstamped"]
    assert service.rows("logs.all", project="other-project") == []


def test_a_pin_of_any_field_is_set_and_enforced(service: Service) -> None:
    key = create_key(service, "--scope", "ingest", "--pin", "tenant=mine", "--pin", "project=stamped-too")
    assert send_event(service, key, "postgres.logs", {"event_message": "bare"}).json()["accepted"] == 1
    claimed = send_event(
        service, key, "postgres.logs", {"batch": [{"tenant": "yours"}, {"tenant": "mine"}, {"tenant": 7}]}
    ).json()
    assert (claimed["accepted"], claimed["quarantined"]) == (1, 2)
    assert "pinned to tenant 'mine', the event is of 'yours'" in claimed["reasons"][0]["reason"]
    sql = "select tenant from `postgres.logs` where project = 'stamped-too'"
    result_rows = service.client.get("/api/query", params={"sql": sql}).json()["result"]
    assert result_rows == [{"tenant": "mine"}, {"tenant": "mine"}]


def test_events_of_a_key_with_a_pin_on_a_fixed_field_are_quarantined(service: Service) -> None:
    key = create_key(service, "--scope", "ingest", "--pin", "timestamp=2026-01-01")
    assert send_event(service, key, "postgres.logs", {"event_message": "whenever"}).json()["quarantined"] == 1


@pytest.mark.parametrize("terms", [("--pin", "project=mine"), ("--redact", "always")])
@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", "/1"), ("POST", "/1/rotate")])
def test_a_restricted_private_key_may_not_manage_keys(
    service: Service, terms: tuple[str, str], method: str, path: str
) -> None:
    key = create_key(service, "--scope", "private", *terms)
    address = f"{service.url}/api/access-tokens{path}"
    assert httpx.request(method, address, headers={"X-API-KEY": key}).status_code == 403


def test_the_rate_of_a_key_limits_queries(service: Service) -> None:
    key = create_key(service, "--scope", "query", "--rate", "2/m")
    statuses = [send_query(service, key, project="x").status_code for _ in range(5)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert int(send_query(service, key, project="x").headers["retry-after"]) >= 1


def test_the_rate_of_a_key_limits_ingest(service: Service) -> None:
    key = create_key(service, "--scope", "ingest", "--rate", "2/m")
    answers = [send_event(service, key, "postgres.logs", event("x", "y")) for _ in range(5)]
    assert (answers[0].status_code, answers[-1].status_code) == (200, 429)
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_public_endpoint_needs_no_key_by_its_uuid(start: Start, tmp_path: Path) -> None:
    text = f'/* name = "open"\nid = "{PUBLIC_ENDPOINT}"\nauth = false */ select 1 as x'
    (tmp_path / "open.sql").write_text(text)
    service = start("--endpoints", str(tmp_path))
    assert send_query(service, None, PUBLIC_ENDPOINT).json() == {"result": [{"x": 1}]}
    assert send_query(service, "cw_wrong", PUBLIC_ENDPOINT).status_code == 200
    assert send_query(service, PUBLIC, PUBLIC_ENDPOINT).status_code == 200
    assert send_query(service, None, "open").status_code == 401


def signed_token(secret: str = SECRET, **claims: object) -> str:
    return jwt.encode({"exp": int(time.time()) + 60, **claims}, secret, algorithm="HS256")


def test_a_signed_key_needs_no_store(start: Start) -> None:
    service = start(env={"CORDWOOD_KEYS_JWT_SECRET": SECRET, "CORDWOOD_KEYS_JWT_AUDIENCE": "cordwood"})
    service.send("cloudflare.logs.prod", [event("signed", "of signed")])
    valid_token = signed_token(scope="query", aud="cordwood", endpoints=["logs.all"], pins={"project": "signed"})
    bearer = {"Authorization": f"Bearer {valid_token}"}
    answer = httpx.get(f"{service.url}/api/endpoints/query/logs.all", headers=bearer)
    assert [row["event_message"] for row in answer.json()["result"]] == ["of signed"]
    assert refusal_message(send_query(service, valid_token, project="other"))
    assert refusal_message(send_query(service, valid_token, "usage.api-counts", interval="daily"))
    for wrong in (
        signed_token("another-secret-of-more-than-thirty-two", scope="query", aud="cordwood"),
        signed_token(scope="query", aud="another"),
        signed_token(scope="query", aud="cordwood", exp=int(time.time()) - 60),
        signed_token(scope="query", aud="cordwood", nbf=int(time.time()) + 60),
    ):
        assert refusal_message(send_query(service, wrong, project="signed"), 401)
        assert wrong not in service.output.read_text()


def test_a_key_over_http_has_logflares_format(service: Service) -> None:
    fields = {
        "description": "d",
        "scopes": "query ingest",
        "token": "mine",
        "pins": {"project": "p"},
        "expires_in": "1h",
    }
    created = service.client.post("/api/access-tokens", json=fields)
    assert created.status_code == 201
    received = created.json()
    assert received["token"].startswith("cw_")
    assert (received["description"], received["scopes"], received["pins"]) == ("d", "ingest query", {"project": "p"})
    listing = service.client.get("/api/access-tokens").json()
    (line,) = [line for line in listing if line["id"] == received["id"]]
    assert line["token"] is None
    assert set(line) >= {"id", "token", "scopes", "description", "inserted_at"}
    assert service.client.delete(f"/api/access-tokens/{received['token']}").status_code == 204
    deleted = service.client.delete(f"/api/access-tokens/{received['id']}")
    assert (deleted.status_code, deleted.json()["error"]["status"]) == (404, "request.unknown-key")


def test_the_query_string_of_a_new_key_may_have_only_description_and_scopes(service: Service) -> None:
    def create(address: str, **body: object) -> httpx.Response:
        return service.client.post(f"/api/access-tokens?{address}", json=body)

    received = create("description=of+the+address&scopes=query+ingest").json()
    assert (received["description"], received["scopes"]) == ("of the address", "ingest query")
    assert create("description=d", scopes="query").json()["scopes"] == "query"
    for refused_call in (
        create("pins=x", scopes="query"),
        create("scopes=query", scopes="ingest"),
        create("scope=query"),
    ):
        assert refused_call.status_code == 422, refused_call.text


def test_a_scope_with_a_numeric_endpoint_id_permits_only_that_endpoint(service: Service) -> None:
    (body,) = [endpoint for endpoint in service.client.get("/api/endpoints").json() if endpoint["name"] == "logs.all"]
    received = service.client.post("/api/access-tokens", json={"scopes": f"query:endpoint:{body['id']}"}).json()
    assert received["scopes"] == f"query:endpoint:{body['token']}"
    assert send_query(service, received["token"], project="p").status_code == 200
    assert refusal_message(send_query(service, received["token"], "usage.api-counts", interval="daily"))


def test_a_key_is_rotated_over_http_with_a_grace_period(service: Service) -> None:
    received = service.client.post("/api/access-tokens", json={"scopes": "query", "description": "turned"}).json()
    address = f"/api/access-tokens/{received['id']}/rotate"
    rotated = service.client.post(address, json={"grace": "10m"})
    assert (rotated.status_code, rotated.json()["description"], rotated.json()["scopes"]) == (201, "turned", "query")
    assert {
        send_query(service, key, project="x").status_code for key in (received["token"], rotated.json()["token"])
    } == {200}
    assert all(line["token"] is None for line in service.client.get("/api/access-tokens").json())
    assert service.client.post(f"/api/access-tokens/{rotated.json()['id']}/rotate").status_code == 201
    assert send_query(service, rotated.json()["token"], project="x").status_code == 401


def test_a_grace_period_that_is_too_long_is_refused(service: Service) -> None:
    received = service.client.post("/api/access-tokens", json={"scopes": "query"}).json()
    address = f"/api/access-tokens/{received['id']}/rotate"
    refused = service.client.post(address, json={"grace": "99999999d"})
    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        {"grace": ["must be at most 1000 years"]},
    )
    assert service.client.get("/api/access-tokens").status_code == 200
    assert send_query(service, received["token"], project="x").status_code == 200


def test_a_key_without_scopes_is_public(service: Service) -> None:
    assert service.client.post("/api/access-tokens", json={}).json()["scopes"] == "public"
    assert service.client.post("/api/access-tokens").json()["scopes"] == "public"


@pytest.mark.parametrize(
    ("wrong", "right"), [("pin", "pins"), ("scope", "scopes"), ("expires", "expires_in"), ("redacted", "redact")]
)
def test_a_misspelt_field_of_a_new_key_is_refused(service: Service, wrong: str, right: str) -> None:
    before = listed_keys(service)
    answer = service.client.post("/api/access-tokens", json={"scopes": "query", wrong: "x"})
    assert (answer.status_code, answer.json()["errors"]) == (422, {wrong: ["is not a term of a key"]})
    assert answer.json()["error"]["hint"] == f"Did you mean {right}?"
    assert listed_keys(service) == before
    ignored = {"scopes": "query", "token": "mine", "id": 7, "inserted_at": "2026-01-01", "team": 1}
    assert service.client.post("/api/access-tokens", json=ignored).status_code == 201


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({"scopes": "admin"}, {"scopes": ["contains unrecognized scope"]}),
        ({"scopes": "query:endpoint:gone"}, {"scopes": ["names an unknown endpoint"]}),
        ({"expires_in": "soon"}, {"expires_in": ["is invalid"]}),
        ({"expires_in": "1000000000d"}, {"expires_in": ["must be at most 1000 years"]}),
        ({"expires_in": 1e300}, {"expires_in": ["must be at most 1000 years"]}),
        ({"rate": "9" * 400 + "/s"}, {"rate": ["is invalid"]}),
        ({"rate": "fast"}, {"rate": ["is invalid"]}),
        ({"scopes": "query", "redact": "yes"}, {"redact": ["is invalid"]}),
    ],
)
def test_invalid_terms_are_422_with_the_field(
    service: Service, body: dict[str, object], errors: dict[str, list[str]]
) -> None:
    answer = service.client.post("/api/access-tokens", json=body)
    assert (answer.status_code, answer.json()["errors"]) == (422, errors)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", "/1"), ("POST", "/1/rotate")])
@pytest.mark.parametrize(("key", "status"), [(None, 401), ("cw_wrong", 401), (PUBLIC, 403)])
def test_managing_keys_needs_a_private_key(
    service: Service, method: str, path: str, key: str | None, status: int
) -> None:
    headers = {"X-API-KEY": key} if key else {}
    assert httpx.request(method, f"{service.url}/api/access-tokens{path}", headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/api/access-tokens", "/api/backup", "/api/alerts", "/api/streams/unknown/events"])
def test_requests_that_a_restricted_private_key_is_refused_count_against_its_rate(start: Start, path: str) -> None:
    service = start()
    key = create_key(service, "--scope", "private", "--pin", "project=mine", "--rate", "1/h")
    statuses = [httpx.get(service.url + path, headers={"X-API-KEY": key}).status_code for _ in range(2)]
    assert statuses == [404 if "unknown" in path else 403, 429]


def test_refusals_and_changes_of_keys_are_audited_without_secrets(start: Start) -> None:
    service = start()
    key = create_key(service, "--scope", "query", "--pin", "project=mine")
    send_query(service, None)
    send_query(service, "cw_wrong_and_secret")
    send_query(service, key, project="other")
    send_query(service, PUBLIC, project="x")
    slow = create_key(service, "--scope", "query", "--rate", "1/h")
    for _ in range(3):
        send_query(service, slow, project="x")
    bodies = [send_query(service, "cw_wrong_and_secret").text, send_query(service, key, project="other").text]
    metrics = httpx.get(f"{service.url}/metrics").text
    rotated = run_keys("rotate", "1", "--data-dir", str(service.data_dir)).stdout.strip()
    run_keys("revoke", "2", "--data-dir", str(service.data_dir))
    received = service.stop_and_read()
    lines = [json.loads(line) for line in received.splitlines() if '"event":"audit"' in line]
    codes = [line["subject"].partition(":")[0] for line in lines if line["action"] == "refused"]
    assert codes[:4] == ["request.no-key", "request.bad-key", "request.forbidden", "request.forbidden"]
    assert "limit.rate" in codes[4:]
    assert [line["action"] for line in lines if line["action"] != "refused"] == [
        "key.created",
        "key.created",
        "key.rotated",
        "key.revoked",
    ]
    secrets = (key, slow, rotated, "cw_wrong_and_secret", PUBLIC, PRIVATE)
    assert not any(secret in text for secret in secrets for text in (received, metrics, *bodies))


def test_a_change_without_a_service_is_audited(tmp_path: Path) -> None:
    result = run_keys("create", "--scope", "query", "--data-dir", str(tmp_path / "data"))
    (line,) = [json.loads(line) for line in result.stderr.splitlines() if '"event":"audit"' in line]
    assert (line["action"], line["subject"]) == ("key.created", "key 1 (query)")
    assert result.stdout.strip() not in result.stderr


def test_a_reload_reads_a_changed_jwks_file(start: Start, tmp_path: Path) -> None:
    old_signing_key, new_signing_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    file = tmp_path / "jwks.json"

    def publish(key: ec.EllipticCurvePrivateKey) -> None:
        file.write_text(json.dumps({"keys": [jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)]}))

    def status(key: ec.EllipticCurvePrivateKey) -> int:
        claims = {"exp": int(time.time()) + 60, "scope": "query"}
        return send_query(service, jwt.encode(claims, key, algorithm="ES256"), project="x").status_code

    publish(old_signing_key)
    service = start(env={"CORDWOOD_KEYS_JWT_JWKS_FILE": str(file)})
    assert (status(old_signing_key), status(new_signing_key)) == (200, 401)
    publish(new_signing_key)
    reload = [sys.executable, "-m", "cordwood", "reload", "--data-dir", str(service.data_dir)]
    assert subprocess.run(reload, check=False, timeout=60).returncode == 0
    assert (status(old_signing_key), status(new_signing_key)) == (401, 200)
    file.write_text("broken")
    assert subprocess.run(reload, check=False, timeout=60).returncode == 1
    assert status(new_signing_key) == 200
