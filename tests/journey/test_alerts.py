"""Alerts, from stored events to webhooks, with a manual clock, failing receivers and restarts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.alerting import SECOND_US, ManualClockService, WebhookReceiver
from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood
from tests.waiting import until

STREAM = "postgres.logs"
ERRORS_ENDPOINT = """/*
name = "errors"
max_rows = 100

[parameters.since]
type = "TIMESTAMP"

[alert]
every = "10s"
for = "30s"
condition = "errors >= 3"
group_by = ["project"]
severity = "critical"
text = "{errors} errors of {project}"
send_to = ["hook"]
parameters = {since = "now-1m"}
*/
select t.project, count(*) as errors
from `postgres.logs` as t
where t.timestamp > @since
group by t.project
"""
# An alert on a sub-query of a built-in endpoint, which fires if there are no events.
MISSING_EVENTS_ALERT = """endpoint = "logs.all"
every = "10s"
condition = "missing"
lql = "f:postgres_logs"
send_to = ["hook"]
parameters = {project = "p", iso_timestamp_start = "now-2m"}
"""


def error_events(count: int, project: str = "p") -> list[dict[str, str]]:
    return [{"project": project, "event_message": f"error {number}"} for number in range(count)]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    opened = WebhookReceiver()
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT)
    return tmp_path


def test_an_alert_is_pending_fires_and_is_resolved(folder: Path, receiver: WebhookReceiver) -> None:
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.advance(20)
        assert service.states() == {"errors": []}
        service.send(STREAM, error_events(4) + error_events(2, "q"))
        service.advance(10)
        assert service.states() == {"errors": ["pending"]}
        service.advance(20)
        assert receiver.accepted_changes == []
        service.advance(10)
        assert receiver.accepted_changes == [("errors", "firing", {"project": "p"})]
        (change,) = receiver.received[0]["data"]["changes"]
        assert (change["text"], change["value"], receiver.received[0]["data"]["severity"]) == (
            "4 errors of p", 4.0, "critical",
        )  # fmt: skip
        service.advance(60)
        assert receiver.accepted_changes[1:] == [("errors", "resolved", {"project": "p"})]
        assert receiver.received[1]["data"]["changes"][0]["fingerprint"] == change["fingerprint"]
        assert service.history() == ["pending", "firing", "sent", "resolved", "sent"]


def test_restarts_in_every_state_neither_repeat_nor_lose_notifications(folder: Path, receiver: WebhookReceiver) -> None:
    (folder / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT.replace("now-1m", "now-5m"))
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.advance(5)
        service.send(STREAM, error_events(3))
        service.advance(10)
        for expected in (["pending"], ["pending"]):
            assert service.states()["errors"] == expected
            service.restart()
            service.advance(5)
        service.advance(30)
        for _ in range(3):
            assert service.states()["errors"] == ["firing"]
            service.restart()
            service.advance(5)
        assert receiver.accepted_changes == [("errors", "firing", {"project": "p"})]
        service.advance(300, step=10)
        for _ in range(3):
            assert service.states()["errors"] == []
            service.restart()
            service.advance(5)
        assert [state for _, state, _ in receiver.accepted_changes] == ["firing", "resolved"]


def test_a_receiver_that_recovers_gets_each_notification_once(folder: Path, receiver: WebhookReceiver) -> None:
    with ManualClockService(folder, f"hook = {receiver.target}", send_time=0.3) as service:
        receiver.status = 500
        service.send(STREAM, error_events(3))
        service.advance(60)
        assert receiver.accepted_changes == []
        (target,) = service.http("GET", "/api/alerts")["targets"]
        assert (target["queued"], target["failures"] > 2, "500" in target["error"]) == (1, True, True)
        receiver.status, receiver.delay = 200, 0.8
        service.advance(40)
        assert "no complete answer within 0.3 s" in service.http("GET", "/api/alerts")["targets"][0]["error"]
        # The alert is resolved while the receiver fails. After a restart, the notification is sent immediately.
        receiver.status, receiver.delay = 503, 0.0
        time.sleep(1)
        receiver.received.clear()
        receiver.ids.clear()
        service.advance(60)
        receiver.status = 200
        service.restart()
        service.advance(1)
        assert receiver.accepted_changes == [("errors", "resolved", {"project": "p"})]
        service.advance(600, step=10.0)
        assert len(receiver.ids) == 1
        assert service.http("GET", "/api/alerts")["targets"][0]["failures"] == 0


def test_retry_after_of_a_receiver_is_respected(folder: Path, receiver: WebhookReceiver) -> None:
    (folder / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT.replace("now-1m", "now-5m"))
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        receiver.status, receiver.headers = 429, {"Retry-After": "25"}
        service.send(STREAM, error_events(3))
        service.advance(35)
        receiver.status = 200
        service.advance(19)
        assert receiver.accepted_changes == []
        service.advance(10)
        assert [state for _, state, _ in receiver.accepted_changes] == ["firing"]


def test_an_alert_on_missing_events_fires_and_is_resolved_by_new_events(
    folder: Path, receiver: WebhookReceiver
) -> None:
    (folder / "queries" / "errors.sql").unlink()
    (folder / "queries" / "quiet.alert.toml").write_text(MISSING_EVENTS_ALERT)
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(1))
        service.advance(60)
        assert service.states() == {"quiet": []}
        service.advance(80)
        assert receiver.accepted_changes == [("quiet", "firing", {})]
        assert receiver.received[0]["data"]["changes"][0]["text"] == "logs.all: missing"
        service.send(STREAM, error_events(1))
        service.advance(10)
        assert receiver.accepted_changes[1:] == [("quiet", "resolved", {})]


def test_a_change_is_compared_with_the_same_query_a_period_before(folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace('"errors >= 3"', '"change(errors) >= 200%"\nbefore = "1m"').replace(
        'for = "30s"\n', ""
    )
    text = text.replace("[alert]", '[parameters.until]\ntype = "TIMESTAMP"\n\n[alert]').replace(
        '"now-1m"}', '"now-1m", until = "now"}'
    )
    text = text.replace("> @since", "> @since and t.timestamp <= @until")
    (folder / "queries" / "errors.sql").write_text(text)
    with ManualClockService(folder, f"hook = {receiver.target}") as service:

        def change() -> list[float]:
            return [fired["value"] for fired in service.http("GET", "/api/alerts/errors/preview")["firing"]]

        service.send(STREAM, error_events(2))
        service.advance(20)
        # The change from zero is infinite, and JSON cannot represent this number.
        assert change() == [None]
        service.advance(50)
        assert [state for _, state, _ in receiver.accepted_changes] == ["firing", "resolved"]
        service.send(STREAM, error_events(5))
        service.advance(10)
        assert change() == [], "5 now and 2 before are 150 % more"
        service.send(STREAM, error_events(1))
        service.advance(10)
        assert change() == [200.0]
        assert receiver.accepted_changes[2:] == [("errors", "firing", {"project": "p"})]


def test_a_silence_suppresses_notifications_until_it_ends(folder: Path, receiver: WebhookReceiver) -> None:
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        silence = {"alert": "errors", "labels": {"project": "p"}, "for": "2m", "comment": "known"}
        created_silence = service.http("POST", "/api/alerts/silences", silence)
        service.send(STREAM, error_events(3) + error_events(3, "q"))
        service.advance(50)
        assert receiver.accepted_changes == [("errors", "firing", {"project": "q"})]
        (alert,) = service.http("GET", "/api/alerts")["alerts"]
        assert {instance["labels"]["project"]: instance["silenced"] for instance in alert["instances"]} == {
            "p": True,
            "q": False,
        }
        service.restart()
        assert [entry["id"] for entry in service.http("GET", "/api/alerts/silences")["silences"]] == [
            created_silence["id"]
        ]
        service.http("DELETE", f"/api/alerts/silences/{created_silence['id']}")
        service.advance(6)
        assert receiver.accepted_changes[1:2] == [("errors", "firing", {"project": "p"})]


def test_alerts_are_added_and_removed_at_a_reload(folder: Path, receiver: WebhookReceiver) -> None:
    file = folder / "queries" / "errors.sql"
    file.write_text(
        ERRORS_ENDPOINT[: ERRORS_ENDPOINT.index("[alert]")] + ERRORS_ENDPOINT[ERRORS_ENDPOINT.index("*/") :]
    )
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(3))
        assert not (folder / "data" / "alerts.db").exists(), "a service without alerts has no store of them"
        file.write_text(ERRORS_ENDPOINT)
        service.reload()
        service.advance(50)
        assert [state for _, state, _ in receiver.accepted_changes] == ["firing"]
        file.write_text(
            ERRORS_ENDPOINT[: ERRORS_ENDPOINT.index("[alert]")] + ERRORS_ENDPOINT[ERRORS_ENDPOINT.index("*/") :]
        )
        service.reload()
        service.advance(1)
        assert [state for _, state, _ in receiver.accepted_changes] == ["firing", "resolved"]


def test_a_failed_evaluation_is_reported_and_keeps_states(folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace("count(*) as errors", "if(count(*) > 4, error('too many'), count(*)) as errors")
    (folder / "queries" / "errors.sql").write_text(text)
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(4))
        service.advance(45)
        service.send(STREAM, error_events(1))
        service.advance(10)
        assert "too many" in str(service.error("errors"))
        assert service.states() == {"errors": ["firing"]}
        service.advance(70)
        assert service.error("errors") is None
        assert service.history() == ["pending", "firing", "sent", "error", "resolved", "recovered", "sent"]


def test_rows_beyond_the_limit_are_reported(folder: Path, receiver: WebhookReceiver) -> None:
    (folder / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT.replace("max_rows = 100", "max_rows = 2"))
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(3, "a") + error_events(3, "b") + error_events(3, "c"))
        service.advance(15)
        (alert,) = service.http("GET", "/api/alerts")["alerts"]
        assert alert["notice"] == "The answer was cut (max_rows=2): groups beyond it are not watched."


def test_an_answer_that_is_too_large_is_an_error(folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace("count(*) as errors", "count(*) as errors, max(t.event_message) as m")
    (folder / "queries" / "errors.sql").write_text(text)
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        for number in range(6):
            service.send(STREAM, [{"project": f"p{number}", "event_message": "x" * 900_000}] * 3)
        service.advance(45)
        assert service.error("errors") == "The answer has more than 4 MiB."
        assert receiver.accepted_changes == []


def test_evaluations_use_cached_answers(folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace("max_rows = 100", 'cache = "1h"').replace('parameters = {since = "now-1m"}', "")
    text = text.replace("where t.timestamp > @since", "where (@since is null or t.timestamp > @since)")
    (folder / "queries" / "errors.sql").write_text(text)
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(3))
        assert service.http("GET", "/api/endpoints/query/errors")["result"] == [{"project": "p", "errors": 3}]
        service.send(STREAM, error_events(3, "q"))
        service.advance(60)
        assert receiver.accepted_changes == [("errors", "firing", {"project": "p"})], (
            "the cached answer knows nothing of q"
        )


def test_evaluations_run_in_the_refresh_lane(folder: Path, receiver: WebhookReceiver) -> None:
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.send(STREAM, error_events(3))
        service.advance(20)
        claims = [line for line in service.metrics().splitlines() if 'places_claims_total{places="query"' in line]
        assert claims
        assert all('lane="refresh",outcome="admitted"' in line for line in claims)


# The tests below start real processes.


def start_with_receiver(start: Start, folder: Path, receiver: WebhookReceiver, data_dir: Path | None = None) -> Service:
    settings = {
        "CORDWOOD_ALERTS_TARGETS": f"hook = {receiver.target}",
        "CORDWOOD_ALERTS_REFUSE_ADDRESSES": "private",
        "CORDWOOD_ALERTS_SEND_RATE": "1000/s",
    }
    return start("--endpoints", str(folder / "queries"), data_dir=data_dir or folder / "data", env=settings)


def test_kill_9_in_every_state_neither_repeats_nor_loses_notifications(
    start: Start, folder: Path, receiver: WebhookReceiver
) -> None:
    text = ERRORS_ENDPOINT.replace('every = "10s"', 'every = "1s"').replace('for = "30s"', 'for = "3s"')
    (folder / "queries" / "errors.sql").write_text(text.replace("now-1m", "now-20s"))

    def is_sent(service: Service) -> bool:
        """Return whether the service has recorded the delivery durably.

        A kill before that would repeat the delivery with the same id.
        """
        return bool(service.client.get("/api/alerts").json()["targets"][0]["queued"] == 0)

    def state(service: Service) -> str:
        return str(service.client.get("/api/alerts").json()["alerts"][0]["state"])

    service = start_with_receiver(start, folder, receiver)
    assert service.send(STREAM, error_events(3)).status_code == 200
    until(lambda: state(service) == "pending")
    service.kill()
    service = start_with_receiver(start, folder, receiver)
    until(lambda: state(service) == "firing")
    until(lambda: len(receiver.accepted_changes) == 1)
    until(lambda: is_sent(service))
    service.kill()
    # The alert is resolved while the receiver fails. The process is killed before the notification is delivered.
    receiver.status = 503
    service = start_with_receiver(start, folder, receiver)
    until(lambda: state(service) == "inactive", 60)
    service.kill()
    receiver.status = 200
    service = start_with_receiver(start, folder, receiver)
    until(lambda: len(receiver.accepted_changes) == 2)
    until(lambda: is_sent(service))
    service.kill()
    service = start_with_receiver(start, folder, receiver)
    until(lambda: service.client.get("/api/alerts").json()["alerts"][0].get("evaluated_at") is not None)
    assert service.stop() == 0
    assert [state for _, state, _ in receiver.accepted_changes] == ["firing", "resolved"]


def test_a_restored_backup_keeps_states_and_silences(start: Start, folder: Path, receiver: WebhookReceiver) -> None:
    text = (
        ERRORS_ENDPOINT.replace('every = "10s"', 'every = "1s"')
        .replace('for = "30s"\n', "")
        .replace("now-1m", "now-1h")
    )
    (folder / "queries" / "errors.sql").write_text(text)
    service = start_with_receiver(start, folder, receiver)
    assert service.send(STREAM, error_events(3)).status_code == 200
    until(lambda: len(receiver.accepted_changes) == 1)
    assert service.client.post("/api/alerts/silences", json={"for": "1h", "comment": "kept"}).status_code == 201
    backup_result = cordwood("backup", str(folder / "backup"), "--url", service.url, "--key", PRIVATE)
    assert backup_result.returncode == 0, backup_result.stderr
    restored = cordwood("restore", str(folder / "backup"), "--data-dir", str(folder / "again" / "data"))
    assert restored.returncode == 0, restored.stderr
    service_on_backup = start_with_receiver(start, folder, receiver, data_dir=folder / "again" / "data")
    until(lambda: service_on_backup.client.get("/api/alerts").json()["alerts"][0].get("evaluated_at") is not None)
    assert service_on_backup.client.get("/api/alerts").json()["alerts"][0]["state"] == "firing"
    assert service_on_backup.client.get("/api/alerts/silences").json()["silences"][0]["comment"] == "kept"
    assert len(receiver.accepted_changes) == 1


def test_the_doctor_reports_failing_alerts_and_targets(start: Start, folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace('every = "10s"', 'every = "1s"').replace('for = "30s"\n', "")
    (folder / "queries" / "errors.sql").write_text(text)
    failing = text.replace('name = "errors"', 'name = "broken"').replace("count(*) as", "error('always') as")
    (folder / "queries" / "broken.sql").write_text(failing)
    receiver.status = 500
    service = start_with_receiver(start, folder, receiver)
    assert service.send(STREAM, error_events(3)).status_code == 200
    until(lambda: service.client.get("/api/alerts").json()["targets"][0]["failures"] > 0)
    doctor = cordwood("doctor", "--url", service.url, "--key", PRIVATE)
    assert doctor.returncode == 1
    assert "broken: " in doctor.stdout
    assert "always" in doctor.stdout
    assert "hook failed " in doctor.stdout
    assert "2 are evaluated" in doctor.stdout


def test_evaluations_continue_after_the_clock_is_set_back(folder: Path, receiver: WebhookReceiver) -> None:
    with ManualClockService(folder, f"hook = {receiver.target}") as service:
        service.advance(20)
        service.now_us -= 86_400 * SECOND_US
        service.advance(10)
        (alert,) = service.http("GET", "/api/alerts")["alerts"]
        assert alert["evaluated_at"].startswith("2023-11-13")


def test_a_damaged_store_of_alerts_is_reported_and_the_service_continues(
    start: Start, folder: Path, receiver: WebhookReceiver
) -> None:
    file = folder / "queries" / "errors.sql"
    file.write_text(
        ERRORS_ENDPOINT[: ERRORS_ENDPOINT.index("[alert]")] + ERRORS_ENDPOINT[ERRORS_ENDPOINT.index("*/") :]
    )
    service = start_with_receiver(start, folder, receiver)
    (folder / "data" / "alerts.db").mkdir()
    file.write_text(ERRORS_ENDPOINT)
    assert cordwood("reload", "--data-dir", str(folder / "data")).returncode == 0
    until(lambda: "alerts.db cannot be used" in service.output.read_text())
    time.sleep(2.5)
    assert service.output.read_text().count("alerts.db cannot be used") == 1
    assert service.send(STREAM, error_events(1)).status_code == 200
    assert service.client.get("/api/alerts").status_code == 200
    service.kill()
    refused = cordwood(
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(folder / "data"),
        "--endpoints",
        str(folder / "queries"),
        CORDWOOD_ALERTS_TARGETS=f"hook = {receiver.target}",
        CORDWOOD_ALERTS_REFUSE_ADDRESSES="none",
    )
    assert (refused.returncode, "alerts.db cannot be used" in refused.stderr) == (1, True)


def test_sigterm_waits_for_a_notification_in_progress(start: Start, folder: Path, receiver: WebhookReceiver) -> None:
    text = ERRORS_ENDPOINT.replace('every = "10s"', 'every = "1s"').replace('for = "30s"\n', "")
    (folder / "queries" / "errors.sql").write_text(text)
    receiver.delay = 2.0
    service = start_with_receiver(start, folder, receiver)
    assert service.send(STREAM, error_events(3)).status_code == 200
    until(lambda: service.client.get("/api/alerts").json()["alerts"][0]["state"] == "firing")
    service.client.close()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0
    service = start_with_receiver(start, folder, receiver)
    until(lambda: service.client.get("/api/alerts").json()["alerts"][0].get("evaluated_at") is not None)
    assert len(receiver.accepted_changes) == 1


def test_an_alert_is_created_changed_and_deleted_with_its_endpoint_over_http(
    start: Start, receiver: WebhookReceiver
) -> None:
    service = start(
        env={
            "CORDWOOD_ALERTS_TARGETS": f"hook = {receiver.target}",
            "CORDWOOD_ALERTS_REFUSE_ADDRESSES": "private",
        }
    )
    fields = {
        "name": "all.errors",
        "query": "select count(*) as n from `postgres.logs`",
        "alert": {"every": "1s", "condition": "n > 2", "send_to": ["hook"]},
    }
    assert service.client.post("/api/endpoints", json=fields).status_code == 201
    assert service.send(STREAM, error_events(3)).status_code == 200
    until(lambda: receiver.accepted_changes == [("all.errors", "firing", {})])
    refused = service.client.put("/api/endpoints/all.errors", json={"alert": {"every": "1s", "condition": "m > 2"}})
    assert refused.status_code == 422, refused.text
    assert "the answer has no column m" in refused.text
    wrong = service.client.put("/api/endpoints/all.errors", json={"alert": {"every": "1s", "condition": "n >"}})
    assert (wrong.status_code, "is not a condition" in wrong.text) == (422, True)
    taken_name_fields = {
        **fields,
        "name": "other",
        "alert": {"every": "1s", "condition": "n > 2", "name": "All.errors"},
    }
    refused = service.client.post("/api/endpoints", json=taken_name_fields)
    assert (refused.status_code, "There is the alert all.errors" in refused.text) == (422, True)
    assert service.client.put("/api/endpoints/all.errors", json={"description": "x"}).status_code == 200
    assert service.client.delete("/api/endpoints/all.errors").status_code == 204
    until(lambda: len(receiver.accepted_changes) == 2)
    assert receiver.accepted_changes[1] == ("all.errors", "resolved", {})


def test_unknown_columns_and_endpoints_are_reported_with_their_position(folder: Path) -> None:
    (folder / "queries" / "quiet.alert.toml").write_text(MISSING_EVENTS_ALERT.replace("logs.all", "logs.al"))
    (folder / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT.replace("{errors} errors", "{error} errors"))
    (folder / "queries" / "b.alert.toml").write_text(MISSING_EVENTS_ALERT)
    command = [sys.executable, "-m", "cordwood", "check", str(folder / "queries")]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "CORDWOOD_ALERTS_TARGETS": ""}
    )
    assert ended.returncode == 1
    assert (
        "quiet.alert.toml:1:1: The alert quiet: there is no endpoint 'logs.al'. Did you mean logs.all?" in ended.stderr
    )
    assert "errors.sql:8:1: The alert errors: the answer has no column error. Did you mean errors?" in ended.stderr


def test_an_unknown_target_stops_the_start_with_a_suggestion(folder: Path, receiver: WebhookReceiver) -> None:
    (folder / "queries" / "errors.sql").write_text(ERRORS_ENDPOINT.replace('send_to = ["hook"]', 'send_to = ["hok"]'))
    arguments = ["--port", "0", "--data-dir", str(folder / "data"), "--endpoints", str(folder / "queries")]
    refused = cordwood(
        "serve", *arguments, CORDWOOD_ALERTS_TARGETS=f"hook = webhook+https://example.com/{receiver.port}"
    )
    assert refused.returncode == 1
    assert (
        "errors.sql:8:1: The alert errors: send_to names hok, which is not a target. Did you mean hook?"
        in refused.stderr
    )


def test_test_pages_check_firing_alerts_at_a_fixed_time(folder: Path) -> None:
    (folder / "queries" / "quiet.alert.toml").write_text(MISSING_EVENTS_ALERT)
    events = "\n".join(json.dumps(event) for event in error_events(3))
    page = f"""# errors

```clock
2024-05-15T12:00:00Z
```

```events postgres.logs
{events}
```

## three errors fire

```alerts
{{"labels": {{"project": "p"}}, "severity": "critical", "text": "3 errors of p", "value": 3}}
```

## the rows are tested as before

```call
since = "2024-05-15T11:59:00Z"
```

```rows
{{"project": "p", "errors": 3}}
```
"""
    (folder / "queries" / "errors.test.md").write_text(page)
    quiet = "# quiet\n\n## nothing was sent\n\n```alerts\n```\n"
    (folder / "queries" / "quiet.alert.test.md").write_text(quiet)
    command = [sys.executable, "-m", "cordwood", "test", str(folder / "queries")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "2 passed, 1 failed" in ended.stdout
    assert '+ {"labels":{},"severity":"warning","text":"logs.all: missing","value":0}' in ended.stdout
    subprocess.run([*command, "--update"], check=True, capture_output=True)
    second_run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (second_run.returncode, second_run.stdout.splitlines()[-1][:8]) == (0, "3 passed")
