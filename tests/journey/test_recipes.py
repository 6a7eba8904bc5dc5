"""The recipes of the guide: services start with their settings, and Docker and Fluent Bit send the described events."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.journey.conftest import Service, start_service
from tests.journey.guide_walk import steps_of
from tests.journey.protocols import port_of
from tests.waiting import until

GUIDE_FILES = {step.saved_as: step.text for step in steps_of("docs/guide/recipes.md") if step.saved_as}
STREAM = "postgres.logs"
# The Fluent message that Docker's logging driver sends for a line of a container.
DOCKER_MESSAGE = {
    "container_id": "c0ffee",
    "container_name": "/hello",
    "source": "stdout",
    "log": "hello from a container",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("recipes")
    config = folder / "cordwood.toml"
    assert "127.0.0.1:24224" in GUIDE_FILES["docker/cordwood.toml"]
    config.write_text(GUIDE_FILES["docker/cordwood.toml"].replace("127.0.0.1:24224", "127.0.0.1:0"))
    running = start_service(folder / "data", "--config", str(config))
    yield running
    running.stop()


def stored_event(service: Service, message: str) -> list[dict[str, Any]]:
    sql = f"select event_message, metadata from `{STREAM}` where event_message = '{message}'"
    result_rows: list[dict[str, Any]] = service.client.get("/api/query", params={"sql": sql}).json()["result"]
    return result_rows


def test_the_options_of_the_driver_match_the_listener_of_the_recipe() -> None:
    options = json.loads(GUIDE_FILES["docker/daemon.json"])
    assert options["log-driver"] == "fluentd"
    assert f'tcp://{options["log-opts"]["fluentd-address"]}"' in GUIDE_FILES["docker/cordwood.toml"]
    assert set(map(type, options["log-opts"].values())) == {str}


def test_a_line_of_a_container_has_the_fields_that_the_recipe_names(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", port_of(service, "fluent tcp")), timeout=30) as docker:
        docker.sendall(msgspec.msgpack.encode(["hello", 1_760_000_000, DOCKER_MESSAGE, {"chunk": "one"}]))
        assert msgspec.msgpack.decode(docker.recv(1000)) == {"ack": "one"}
    until(lambda: bool(stored_event(service, DOCKER_MESSAGE["log"])))
    (event,) = stored_event(service, DOCKER_MESSAGE["log"])
    expected_fields = {name: value for name, value in DOCKER_MESSAGE.items() if name != "log"}
    assert event["metadata"] == [{**expected_fields, "tag": "hello"}]


def test_what_fluent_bit_posts_is_stored(service: Service) -> None:
    body = [{"timestamp": "2026-01-31T12:00:00.000000Z", "message": "card 7 refused", "level": "error"}]
    answer = service.client.post("/logs/vector", params={"source_name": STREAM}, json=body)
    assert answer.json()["accepted"] == 1, answer.text
    (event,) = stored_event(service, "card 7 refused")
    assert event["metadata"][0]["level"] == "error"


def test_the_journals_errors_are_counted_by_unit(service: Service) -> None:
    entries = (
        "__CURSOR=c{n}\n__REALTIME_TIMESTAMP=176000000000000{n}\nPRIORITY={p}\n_SYSTEMD_UNIT=a.service\nMESSAGE=m{n}\n"
    )
    body = "\n".join(entries.format(n=number, p=priority) for number, priority in enumerate((3, 2, 6))) + "\n"
    sent = service.client.post(
        f"/journald/{STREAM}/upload", content=body, headers={"Content-Type": "application/vnd.fdo.journal"}
    )
    assert sent.status_code == 202, sent.text
    answer = service.client.get(
        "/api/query", params={"sql": GUIDE_FILES["journald/units.sql"].replace("postgres_logs", f"`{STREAM}`")}
    )
    assert {"unit": "a.service", "errors": 2} in answer.json()["result"], answer.text


def test_the_upload_url_names_the_stream() -> None:
    assert f"/journald/{STREAM}" in GUIDE_FILES["journald/journal-upload.conf"]
