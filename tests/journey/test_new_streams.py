"""Creation of streams by events, if it is enabled: limits, permissions and durability."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start
from tests.journey.test_cli_clients import cordwood

NEW_STREAM, QUOTED_STREAM = "docker.logs.local", 'the "second" · stream'


def send(service: Service, stream: str, key: str = PUBLIC, message: str = "m") -> httpx.Response:
    event, headers = {"event_message": message}, {"X-API-KEY": key}
    return httpx.post(f"{service.url}/api/logs", params={"source_name": stream}, json=[event], headers=headers)


def messages(service: Service, stream: str) -> list[object]:
    answer = service.client.get("/api/query", params={"sql": f"select event_message as m from `{stream}` order by 1"})
    assert answer.status_code == 200, answer.text
    return [row["m"] for row in answer.json()["result"]]


def create_key(service: Service, **terms: object) -> str:
    response = service.client.post("/api/access-tokens", json=terms)
    assert response.status_code == 201, response.text
    return str(response.json()["token"])


def test_an_unknown_stream_is_404_by_default(service: Service) -> None:
    assert send(service, NEW_STREAM).status_code == 404
    assert not (service.data_dir / "streams.toml").exists()


def test_a_created_stream_survives_a_kill(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_NEW_STREAMS": "3"})
    assert send(service, NEW_STREAM).json()["accepted"] == 1
    assert send(service, QUOTED_STREAM).json()["accepted"] == 1
    service.kill()
    restarted = start(data_dir=service.data_dir)
    assert messages(restarted, NEW_STREAM) == ["m"]
    assert messages(restarted, QUOTED_STREAM) == ["m"]
    assert send(restarted, NEW_STREAM).json()["accepted"] == 1
    assert send(restarted, "third").status_code == 404, "the setting is off now"
    names = {stream["name"] for stream in restarted.client.get("/api/sources").json()}
    assert {NEW_STREAM, QUOTED_STREAM, "postgres.logs"} <= names


def test_only_permitted_keys_create_streams_with_valid_names(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_NEW_STREAMS": "2"})
    other_key = {
        create_key(service, scopes="query"): 403,
        create_key(service, scopes="ingest:source:postgres.logs"): 403,
        create_key(service, scopes="ingest", pins={"project": "p"}): 403,
        "nobody's": 401,
    }
    for secret, status in other_key.items():
        assert send(service, NEW_STREAM, secret).status_code == status
    uuid = "f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c12"
    for name in ("_quarantine", "a`b", "x" * 201, "line\nbreak", "POSTGRES.LOGS", uuid):
        assert send(service, name).status_code == 404, name
    assert not (service.data_dir / "streams.toml").exists()
    # Concurrent requests for the same new stream create it only once.
    with ThreadPoolExecutor(8) as senders:
        responses = list(senders.map(lambda number: send(service, NEW_STREAM, message=f"{number}"), range(8)))
    assert [response.status_code for response in responses] == [200] * 8
    assert messages(service, NEW_STREAM) == [f"{number}" for number in range(8)]
    assert send(service, "second", PRIVATE).status_code == 200
    refused = send(service, "third", PRIVATE)
    assert refused.status_code == 404
    assert "ingest.new_streams" in refused.json()["error"]["hint"]
    assert (service.data_dir / "streams.toml").read_text().count("[[stream]]") == 2


def test_no_key_exhausts_the_number_of_new_streams(start: Start) -> None:
    """Check that each key that is not private may create only half of the remaining streams, because public keys are
    not secret.
    """
    service = start(env={"CORDWOOD_INGEST_NEW_STREAMS": "8"})
    another = create_key(service, scopes="ingest")

    def created(secret: str, prefix: str) -> int:
        return sum(send(service, f"{prefix}.{number}", secret).status_code == 200 for number in range(9))

    assert created(PUBLIC, "public") == 4
    refused = send(service, "public.8")
    assert refused.status_code == 404
    assert "its share of 4 streams" in refused.json()["error"]["hint"]
    assert send(service, "public.0").json()["accepted"] == 1, "what exists takes events as before"
    assert created(another, "another") == 2
    for deleted in ("public.0", "public.1"):
        assert service.client.delete(f"/api/sources/{deleted}").status_code == 204
    assert send(service, "public.8").status_code == 200, "deleted streams no longer count"
    assert created(PRIVATE, "private") == 3, "a private key is not limited to a share"


def test_a_created_stream_survives_backup_and_reload(start: Start, tmp_path: Path) -> None:
    service = start(env={"CORDWOOD_INGEST_NEW_STREAMS": "3"})
    send(service, NEW_STREAM)
    assert cordwood("reload", "--data-dir", str(service.data_dir)).returncode == 0
    assert messages(service, NEW_STREAM) == ["m"]
    backup = tmp_path / "backup"
    backup_result = cordwood("backup", str(backup), "--url", service.url, "--key", PRIVATE)
    assert backup_result.returncode == 0, backup_result.stderr
    service.stop()
    restored = cordwood("restore", str(backup), "--data-dir", str(tmp_path / "restored"))
    assert restored.returncode == 0, restored.stderr
    assert "1 event" in restored.stdout + restored.stderr
    service_on_backup = start(data_dir=tmp_path / "restored")
    assert messages(service_on_backup, NEW_STREAM) == ["m"]


def test_a_stream_with_the_name_of_an_endpoints_source_does_not_affect_the_endpoint(start: Start) -> None:
    """Create streams with the names of an endpoint's sources, and check that nothing breaks.

    Senders may be permitted to create streams. Therefore such a stream must break neither `logs.all.otel` nor the
    description of the API nor a restart.
    """
    service = start(env={"CORDWOOD_INGEST_NEW_STREAMS": "10"})
    event = {"event_message": "of the source", "project": "default", "metadata": [{}]}
    assert service.send("cloudflare.logs.prod", event).status_code == 200
    streams = ["edge_logs", "edge_logs (stream)", "edge_logs events", "other_streams", "logs", "*"]
    for stream in streams:
        assert service.send(stream, {"event_message": f"of {stream}", "project": "default"}).status_code == 200, stream
    for _ in range(2):
        sql = "SELECT source, event_message AS m FROM logs WHERE event_message LIKE 'of %' ORDER BY m, source"
        rows = [(row["source"], row["m"]) for row in service.rows("logs.all.otel", project="default", sql=sql)]
        assert ("edge_logs", "of the source") in rows
        assert len(rows) == len({source for source, _ in rows}) == 1 + len(streams)
        assert [message for source, message in rows if source == "edge_logs"] == ["of the source"]
        assert ("edge_logs (stream) (stream)", "of edge_logs") in rows
        assert ("edge_logs (stream)", "of edge_logs (stream)") in rows
        assert service.client.get("/api/openapi.json").status_code == 200
        assert service.rows("logs.all", project="default", sql="select event_message as m from edge_logs") == [
            {"m": "of the source"}
        ]
        assert service.stop() == 0
        service = start(data_dir=service.data_dir)


def test_six_hundred_streams_can_be_served(start: Start, tmp_path: Path) -> None:
    """Serve the built-in endpoint over all streams, although its query grows with the number of streams.

    A query of this endpoint must name the sources that it reads.
    """
    lines = "\n".join(f'[[stream]]\nname = "app.logs.{number}"\n' for number in range(600))
    (tmp_path / "streams.toml").write_text(lines)
    service = start("--streams", str(tmp_path / "streams.toml"))
    event = {"event_message": "hello", "project": "default"}
    assert service.send("app.logs.79", event).status_code == 200
    sql = "SELECT event_message, source FROM logs WHERE source = 'app.logs.79' LIMIT 10"
    assert service.rows("logs.all.otel", project="default", sql=sql) == [
        {"event_message": "hello", "source": "app.logs.79"}
    ]
    refused = service.query("logs.all.otel", project="default")
    assert refused.status_code == 422
    assert refused.json()["error"]["status"] in ("limit.plan", "limit.compile")
    assert "WHERE source = " in refused.json()["error"]["hint"]
