"""Events sent with a pinned key are never stored in another project, even if their fields name that project."""

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from tests.attack.test_pinned_queries import make_settings, send

OWN_PROJECT, VICTIM_PROJECT = "own", "victim"
# For each stream: its sub-query in logs.all, and the field that names the project.
PROJECT_FIELDS = {
    "deno-relay-logs": ("function_edge_logs", "project_ref"),
    "deno-subhosting-events": ("function_logs", "project_ref"),
    "realtime.logs.prod": ("realtime_logs", "project"),
    "storage.logs.prod.2": ("storage_logs", "project"),
}
# JSON texts of metadata that claims another project. FIELD is replaced by the stream's project field.
CLAIMING_METADATA = [
    '{"FIELD": "victim"}',
    '{"FIELD": "own", "FIELD": "victim"}',
    '{"FIELD": "victim", "FIELD": "own"}',
    '{"FIELD": null, "Field": "victim"}',
    '{"Field": "victim"}',
    '{"F-IELD": "victim"}',
    '{"_FIELD": "victim"}',
    '{"FIELD": ["victim"]}',
    '{"FIELD": {"x": "victim"}}',
    '[{"FIELD": "victim"}]',
    '[{"FIELD": "own"}, {"FIELD": "victim"}]',
    '[{"x": 1}, {"Field": "victim"}]',
    '[[{"FIELD": "victim"}]]',
    '["text", {"FIELD": "victim"}]',
    ' [ {"FIELD":"victim"} ] ',
    '"victim"',
    '{"\\u0046IELD": "victim"}',
]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcessApp]:
    with open_in_process_app(make_settings(tmp_path / "data")) as app:
        yield app


def pinned_key(app: InProcessApp, scopes: str) -> str:
    _, answered = send(app, "/api/access-tokens", {"scopes": scopes, "pins": {"project": OWN_PROJECT}})
    return str(json.loads(answered)["token"])


def claiming_events(stream: str) -> list[str]:
    field = PROJECT_FIELDS[stream][1]
    variants = {
        "F-IELD": field.replace("_", "-"),
        "Field": field.title(),
        "\\u0046IELD": f"\\u{ord(field[0]):04x}{field[1:]}",
    }
    return [
        reduce(lambda text, mark: text.replace(*mark), {**variants, "FIELD": field}.items(), claim)
        for claim in CLAIMING_METADATA
    ]


def stored_messages(app: InProcessApp, stream: str, project: str) -> list[str]:
    body = {"project": project, "sql": f"select id from {PROJECT_FIELDS[stream][0]} order by id"}
    status, answered = send(app, "/api/endpoints/query/logs.all", body)
    assert status == 200, answered
    return [row["id"] for row in json.loads(answered)["result"]]


def post(app: InProcessApp, stream: str, key: str, bodies: list[str]) -> dict[str, object]:
    events = ",".join(f'{{"id": "{number}", "metadata": {claim}}}' for number, claim in enumerate(bodies))
    headers = {"content-type": "application/json", "x-api-key": key}
    status, _, answered = app.send("POST", f"/api/logs?source_name={stream}", f"[{events}]".encode(), headers)
    assert status == 200, answered
    answer: dict[str, object] = json.loads(answered)
    return answer


@pytest.mark.parametrize("stream", PROJECT_FIELDS)
def test_without_a_pin_events_belong_to_the_claimed_project(app: InProcessApp, stream: str) -> None:
    post(app, stream, app.private_key_secret, claiming_events(stream))
    assert len(stored_messages(app, stream, VICTIM_PROJECT)) >= 8


@pytest.mark.parametrize("stream", PROJECT_FIELDS)
def test_events_of_a_pinned_key_that_claim_another_project_are_quarantined(app: InProcessApp, stream: str) -> None:
    answered = post(app, stream, pinned_key(app, "ingest"), claiming_events(stream))
    assert stored_messages(app, stream, VICTIM_PROJECT) == []
    assert int(str(answered["quarantined"])) >= 8
    assert f"The key is pinned to project 'own', the event's metadata.{PROJECT_FIELDS[stream][1]} is 'victim'." in str(
        answered
    )


@pytest.mark.parametrize("stream", PROJECT_FIELDS)
def test_events_without_a_project_get_the_project_of_the_key(app: InProcessApp, stream: str) -> None:
    field = PROJECT_FIELDS[stream][1]
    bodies = ["null", "{}", f'{{"{field}": null, "n": 12345678901234567890}}', f'{{"{field}": "own"}}', '[{"x": 1}]']
    answered = post(app, stream, pinned_key(app, "ingest"), bodies)
    assert (answered["accepted"], answered["quarantined"]) == (5, 0)
    assert stored_messages(app, stream, OWN_PROJECT) == ["0", "1", "2", "3", "4"]


def test_a_stream_with_a_retention_in_its_file_keeps_its_project_field(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[[stream]]\nname = "deno-subhosting-events"\nretention = "30d"\n')
    with open_in_process_app(make_settings(tmp_path / "data", streams=tmp_path / "streams.toml")) as app:
        post(app, "deno-subhosting-events", pinned_key(app, "ingest"), ['{"project_ref": "victim"}'])
        assert stored_messages(app, "deno-subhosting-events", VICTIM_PROJECT) == []


def test_imported_events_must_have_the_project_of_the_key(app: InProcessApp) -> None:
    stream, key = "deno-subhosting-events", pinned_key(app, "private")
    for metadata, status in (
        ('{"project_ref": "victim"}', 403),
        ('{"project_ref": "own"}', 200),
        ('{"Project_Ref": "victim"}', 200),
    ):
        line = {"id": metadata, "timestamp": 1, "ingested_at": 2, "project": OWN_PROJECT, "metadata": metadata}
        assert send(app, f"/api/streams/{stream}/events", line, x_api_key=key)[0] == status
    assert stored_messages(app, stream, VICTIM_PROJECT) == []


def test_a_sender_with_a_pinned_key_cannot_take_or_find_out_an_id_of_another_project(app: InProcessApp) -> None:
    """Send an event with an id that another project uses, before and after that project sends it."""
    stream = "gotrue.logs.prod"

    def send_event(key: str, event_id: str, project: str) -> object:
        event = json.dumps({"id": event_id, "project": project, "event_message": project}).encode()
        headers = {"content-type": "application/json", "x-api-key": key}
        _, _, answered = app.send("POST", f"/api/logs?source_name={stream}", event, headers)
        return json.loads(answered)["accepted"], json.loads(answered)["duplicates"]

    attacker = pinned_key(app, "ingest")
    assert send_event(attacker, "evt-1001", OWN_PROJECT) == (1, 0)
    assert send_event(app.private_key_secret, "evt-1001", VICTIM_PROJECT) == (1, 0)
    assert send_event(app.private_key_secret, "evt-1001", VICTIM_PROJECT) == (0, 1)
    assert send_event(app.private_key_secret, "evt-1002", VICTIM_PROJECT) == (1, 0)
    assert send_event(attacker, "evt-1002", OWN_PROJECT) == (1, 0)
    body = {"project": VICTIM_PROJECT, "sql": "select id, event_message from auth_logs order by id"}
    status, answered = send(app, "/api/endpoints/query/logs.all", body)
    assert status == 200
    assert json.loads(answered)["result"] == [
        {"id": "evt-1001", "event_message": VICTIM_PROJECT},
        {"id": "evt-1002", "event_message": VICTIM_PROJECT},
    ]
