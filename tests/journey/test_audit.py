"""The audit log has a line for each action that needs a private key, and for each refused attempt."""

import json

import httpx

from tests.journey.conftest import PUBLIC, Service, Start


def audit_entries(service: Service) -> list[dict[str, str]]:
    output = service.stop_and_read()
    return [json.loads(line) for line in output.splitlines() if '"event":"audit"' in line]


def test_a_replay_and_a_backup_are_logged_with_key_and_request_id(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_EVENT_SIZE": "1KiB"})
    service.send("postgres.logs", {"id": "long", "event_message": "z" * 1500})
    service.stop()
    service = start()
    new_key = service.client.post("/api/access-tokens", json={"scopes": "private"}).json()
    with httpx.Client(base_url=service.url, headers={"X-API-KEY": new_key["token"]}) as holder:
        (item,) = holder.get("/api/quarantine").json()
        replayed = holder.post(f"/api/quarantine/{item['id']}/replay")
        second_replay = holder.post(f"/api/quarantine/{item['id']}/replay")
        backup = holder.get("/api/backup")
    assert [answer.status_code for answer in (replayed, second_replay, backup)] == [200, 200, 200]
    _, *lines = audit_entries(service)
    assert [(line["action"], line["subject"], line["key"]) for line in lines] == [
        ("quarantine.replayed", f"item {item['id']} to postgres.logs", str(new_key["id"])),
        ("backup.made", "all events and keys", str(new_key["id"])),
    ]
    assert [line["request_id"] for line in lines] == [answer.headers["X-Request-Id"] for answer in (replayed, backup)]


def test_each_refused_attempt_is_logged(start: Start) -> None:
    service = start()
    terms = {"scopes": "private", "pins": {"project": "acme"}}
    pinned = service.client.post("/api/access-tokens", json=terms).json()
    refused = [
        httpx.request(method, service.url + path, headers={"X-API-KEY": key})
        for key in (PUBLIC, pinned["token"])
        for method, path in (
            ("GET", "/api/access-tokens"),
            ("POST", "/api/access-tokens"),
            ("POST", "/api/access-tokens/1/rotate"),
            ("DELETE", "/api/access-tokens/1"),
            ("GET", "/api/backup"),
        )
    ]
    refused.append(httpx.post(f"{service.url}/api/quarantine/none/replay", headers={"X-API-KEY": PUBLIC}))
    assert {answer.status_code for answer in refused} == {403}
    assert len(service.client.get("/api/access-tokens").json()) == 1
    _, *lines = audit_entries(service)
    assert [line["action"] for line in lines] == ["refused"] * len(refused)
    assert all(line["subject"].startswith("request.forbidden: ") for line in lines)
    assert [line["request_id"] for line in lines] == [answer.headers["X-Request-Id"] for answer in refused]
    assert [line["key"] for line in lines] == ["settings:public"] * 5 + [str(pinned["id"])] * 5 + ["settings:public"]
