"""A sender whose key is pinned to one project writes nothing that a reader of another finds, wherever projects stand."""

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_service
from tests.attack.test_pinned import send, settings

OWN, VICTIM = "own", "victim"
# Where logs.all looks for the project, by stream and sub-query.
PLACES = {
    "deno-relay-logs": ("function_edge_logs", "project_ref"),
    "deno-subhosting-events": ("function_logs", "project_ref"),
    "realtime.logs.prod": ("realtime_logs", "project"),
    "storage.logs.prod.2": ("storage_logs", "project"),
}
# FIELD stands for the field; each is JSON as a sender may write it.
CLAIMS = [
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
def inside(tmp_path: Path) -> Iterator[InProcessApp]:
    with open_service(settings(tmp_path / "data")) as inside:
        yield inside


def pinned_key(inside: InProcessApp, scopes: str) -> str:
    _, told = send(inside, "/api/access-tokens", {"scopes": scopes, "pins": {"project": OWN}})
    return str(json.loads(told)["token"])


def claims(stream: str) -> list[str]:
    field = PLACES[stream][1]
    variants = {
        "F-IELD": field.replace("_", "-"),
        "Field": field.title(),
        "\\u0046IELD": f"\\u{ord(field[0]):04x}{field[1:]}",
    }
    return [reduce(lambda text, mark: text.replace(*mark), {**variants, "FIELD": field}.items(), one) for one in CLAIMS]


def found(inside: InProcessApp, stream: str, project: str) -> list[str]:
    body = {"project": project, "sql": f"select id from {PLACES[stream][0]} order by id"}
    status, told = send(inside, "/api/endpoints/query/logs.all", body)
    assert status == 200, told
    return [row["id"] for row in json.loads(told)["result"]]


def post(inside: InProcessApp, stream: str, key: str, bodies: list[str]) -> dict[str, object]:
    events = ",".join(f'{{"id": "{number}", "metadata": {claim}}}' for number, claim in enumerate(bodies))
    headers = {"content-type": "application/json", "x-api-key": key}
    status, _, told = inside.send("POST", f"/api/logs?source_name={stream}", f"[{events}]".encode(), headers)
    assert status == 200, told
    answer: dict[str, object] = json.loads(told)
    return answer


@pytest.mark.parametrize("stream", PLACES)
def test_without_a_pin_such_claims_are_found(inside: InProcessApp, stream: str) -> None:
    post(inside, stream, inside.key, claims(stream))
    assert len(found(inside, stream, VICTIM)) >= 8


@pytest.mark.parametrize("stream", PLACES)
def test_no_claim_of_a_pinned_sender_is_found_by_readers_of_another_project(inside: InProcessApp, stream: str) -> None:
    told = post(inside, stream, pinned_key(inside, "ingest"), claims(stream))
    assert found(inside, stream, VICTIM) == []
    assert int(str(told["quarantined"])) >= 8
    assert f"The key is pinned to project 'own', the event's metadata.{PLACES[stream][1]} is 'victim'." in str(told)


@pytest.mark.parametrize("stream", PLACES)
def test_what_claims_nothing_is_given_the_key_s_project_and_found_by_its_readers(
    inside: InProcessApp, stream: str
) -> None:
    field = PLACES[stream][1]
    bodies = ["null", "{}", f'{{"{field}": null, "n": 12345678901234567890}}', f'{{"{field}": "own"}}', '[{"x": 1}]']
    told = post(inside, stream, pinned_key(inside, "ingest"), bodies)
    assert (told["accepted"], told["quarantined"]) == (5, 0)
    assert found(inside, stream, OWN) == ["0", "1", "2", "3", "4"]


def test_a_stream_that_is_named_anew_for_its_retention_holds_as_before(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[[stream]]\nname = "deno-subhosting-events"\nretention = "30d"\n')
    with open_service(settings(tmp_path / "data", streams=tmp_path / "streams.toml")) as inside:
        post(inside, "deno-subhosting-events", pinned_key(inside, "ingest"), ['{"project_ref": "victim"}'])
        assert found(inside, "deno-subhosting-events", VICTIM) == []


def test_events_of_an_export_are_held_to_the_key_too(inside: InProcessApp) -> None:
    stream, key = "deno-subhosting-events", pinned_key(inside, "private")
    for metadata, status in (
        ('{"project_ref": "victim"}', 403),
        ('{"project_ref": "own"}', 200),
        ('{"Project_Ref": "victim"}', 200),
    ):
        line = {"id": metadata, "timestamp": 1, "ingested_at": 2, "project": OWN, "metadata": metadata}
        assert send(inside, f"/api/streams/{stream}/events", line, x_api_key=key)[0] == status
    assert found(inside, stream, VICTIM) == []
