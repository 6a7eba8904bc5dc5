"""Endpoints and streams that are managed over HTTP: durability, backups, and concurrent changes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood

SQL = "select t.event_message as m from `{}` as t order by 1"


def put_definition(service: Service, kind: str, **fields: object) -> httpx.Response:
    # Each request opens a new connection, because several threads write concurrently.
    return httpx.post(f"{service.url}/api/{kind}", json=fields, headers={"X-API-KEY": PRIVATE}, timeout=60)


def test_acknowledged_definitions_survive_a_kill(start: Start) -> None:
    service, stopped = start(), threading.Event()
    acknowledged: list[tuple[str, int]] = []

    def write(kind: str, name: str) -> None:
        answer = put_definition(service, kind, name=name, **({"query": "select 0 as n"} if kind == "endpoints" else {}))
        assert answer.status_code == 201, answer.text
        number = 0
        while not stopped.is_set():
            number += 1
            fields = {"query": f"select {number} as n"} if kind == "endpoints" else {"retention_days": number}
            try:
                answer = httpx.put(
                    f"{service.url}/api/{kind}/{name}", json=fields, headers={"X-API-KEY": PRIVATE}, timeout=60
                )
            except httpx.TransportError:
                return
            assert answer.status_code == 200, answer.text
            acknowledged.append((name, number))
            if len(acknowledged) > 40:
                service.process.kill()

    with ThreadPoolExecutor(4) as writers:
        writing = [
            writers.submit(write, kind, f"{kind}.{number}") for kind in ("endpoints", "sources") for number in range(2)
        ]
        for thread in writing:
            thread.result()
    service.process.wait()
    service.client.close()
    restarted = start(data_dir=service.data_dir)
    for kind in ("endpoints", "sources"):
        for name in (f"{kind}.{number}" for number in range(2)):
            last = max((number for kind_of, number in acknowledged if kind_of == name), default=0)
            responses = restarted.client.get(f"/api/{kind}/{name}").json()
            # The service may or may not have made the change that was sent when it was killed.
            result_rows = restarted.rows(name)[0]["n"] if kind == "endpoints" else responses["retention_days"] or 0
            assert result_rows in (last, last + 1)
            assert len(restarted.client.get(f"/api/{kind}/{name}/versions").json()) >= min(last, 40)


def test_definitions_are_in_backups_and_may_be_made_concurrently(start: Start, tmp_path: Path) -> None:
    service = start()
    assert put_definition(service, "sources", name="my.app", description="ours").status_code == 201
    service.send("my.app", [{"event_message": "hello"}])
    with ThreadPoolExecutor(8) as writers:
        responses = list(
            writers.map(
                lambda _: put_definition(service, "endpoints", name="mine", query=SQL.format("my.app")), range(8)
            )
        )
        assert sorted(thread.status_code for thread in responses) == [201, *[422] * 7]
        responses = list(
            writers.map(
                lambda n: put_definition(service, "endpoints", name=f"at.once.{n}", query="select 1 as n"), range(8)
            )
        )
        assert [thread.status_code for thread in responses] == [201] * 8
    assert service.rows("mine") == [{"m": "hello"}]
    assert cordwood("reload", "--data-dir", str(service.data_dir)).returncode == 0
    assert service.rows("mine") == [{"m": "hello"}]
    backup = tmp_path / "backup"
    backup_result = cordwood("backup", str(backup), "--url", service.url, "--key", PRIVATE)
    assert backup_result.returncode == 0, backup_result.stderr
    service.stop()
    restored = cordwood("restore", str(backup), "--data-dir", str(tmp_path / "restored"))
    assert restored.returncode == 0, restored.stderr
    service_on_backup = start(data_dir=tmp_path / "restored")
    assert service_on_backup.rows("mine") == [{"m": "hello"}]
    managed = [
        thread["name"]
        for thread in service_on_backup.client.get("/api/endpoints").json()
        if thread["origin"] == "managed"
    ]
    assert sorted(managed) == [*(f"at.once.{number}" for number in range(8)), "mine"]
    assert [thread["version"] for thread in service_on_backup.client.get("/api/sources/my.app/versions").json()] == [1]
    assert service_on_backup.client.put("/api/endpoints/mine", json={"description": "x"}).status_code == 200
