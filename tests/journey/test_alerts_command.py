"""The command `cordwood alerts`: states, history, previews, silences and tests of targets."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, create_key, start_service
from tests.journey.test_cli_clients import Result, cordwood
from tests.journey.watched_databases import ERRORS_NOW, UNREACHABLE_TARGET, create_endpoint, fire_alert
from tests.waiting import until

# Escape sequences that colour, retitle and clear a terminal, and a right-to-left override character.
HOSTILE_TEXT = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202e gnp\r<b>&amp;"


@pytest.fixture(scope="module")
def service_with_alert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service with an alert that fires for two databases, one of which has a hostile name."""
    service = start_service(tmp_path_factory.mktemp("alerts") / "data", env=UNREACHABLE_TARGET)
    create_endpoint(service, ERRORS_NOW)
    quiet = "select 1 as n from `postgres.logs` where event_message = 'never'"
    create_endpoint(service, {"name": "quiet", "query": quiet, "alert": {"condition": "rows", "every": "1h"}})
    fire_alert(service, ("orders", HOSTILE_TEXT))
    yield service
    service.stop()


RunCommand = Callable[..., Result]


@pytest.fixture
def run_alerts(service_with_alert: Service) -> RunCommand:
    return lambda *arguments: cordwood("alerts", *arguments, "--url", service_with_alert.url, "--key", PRIVATE)


def control_characters(text: str) -> list[str]:
    """Return the control characters of the text."""
    return [character for character in text if not character.isprintable() and character != "\n"]


def test_firing_alerts_are_listed_first(run_alerts: RunCommand) -> None:
    result = run_alerts("list")
    head, _, *rows = result.stdout.splitlines()
    assert head.split() == ["state", "severity", "alert", "since", "text", "value", "silenced"]
    assert [row.split()[0] for row in rows] == ["firing", "firing", "inactive"]
    assert "2 errors in orders" in result.stdout
    assert re.search(r"inactive +warning +quiet", result.stdout)


def test_a_failing_target_is_listed_with_the_reason(run_alerts: RunCommand) -> None:
    until(lambda: "target nowhere" in run_alerts("list").stderr)
    assert re.search(r"target nowhere: \d+ failures in a row, \d+ waiting: .*refused", run_alerts("list").stderr)


def test_a_failing_evaluation_is_listed_with_the_reason(service_with_alert: Service, run_alerts: RunCommand) -> None:
    name = "fails"
    query = "select cast(event_message as int64) as n from `postgres.logs`"
    fields = {"name": name, "query": query, "alert": {"condition": "n > 1", "every": "1s"}}
    assert service_with_alert.client.post("/api/endpoints", json=fields).status_code == 201
    try:
        until(lambda: f"{name} cannot be evaluated:" in run_alerts("list").stderr)
        history = run_alerts("history", "--alert", name).stdout
        assert re.search(rf"{name} +error", history)
        preview = run_alerts("preview", name)
        assert (preview.returncode, preview.stdout) == (1, "")
    finally:
        service_with_alert.client.delete(f"/api/endpoints/{name}")


@pytest.mark.parametrize(
    "arguments", [["list"], ["history"], ["preview", "errors.now"], ["silences"]], ids=lambda words: str(words[0])
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_control_characters_of_events_are_not_printed(run_alerts: RunCommand, arguments: list[str], form: str) -> None:
    result = run_alerts(*arguments, "--format", form)
    assert result.returncode == 0, result.stderr
    assert control_characters(result.stdout + result.stderr) == []
    if arguments[0] != "silences":
        assert "red" in result.stdout


def test_the_history_has_the_newest_first_and_a_limit(run_alerts: RunCommand) -> None:
    items = json.loads(run_alerts("history", "--alert", "errors.now", "--format", "json").stdout)
    numbers = [item["number"] for item in items]
    assert numbers == sorted(numbers, reverse=True)
    assert {item["kind"] for item in items} >= {"firing"}
    assert len(json.loads(run_alerts("history", "--limit", "1", "--format", "json").stdout)) == 1
    assert run_alerts("history", "--alert", "quiet").stdout == "nothing has happened\n"
    assert "limit is '0'" in run_alerts("history", "--limit", "0").stderr


def test_a_preview_shows_groups_for_which_the_condition_holds(run_alerts: RunCommand) -> None:
    result = run_alerts("preview", "errors.now")
    assert re.search(r"critical +database=orders +2 errors in orders +2", result.stdout)
    quiet_preview = run_alerts("preview", "quiet")
    assert (quiet_preview.returncode, quiet_preview.stdout) == (0, "the condition holds for none of 1 groups\n")
    unknown = run_alerts("preview", "error.now")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "cordwood alerts: There is no alert 'error.now'. Did you mean errors.now?\n",
    )


def test_a_silence_of_a_group_is_created_listed_and_ended(run_alerts: RunCommand) -> None:
    result = run_alerts("silence", "errors.now", "--for", "2h", "--label", "database=orders", "--comment", "migration")
    assert re.match(r"errors\.now: silenced until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", result.stdout)
    silence = json.loads(run_alerts("silences", "--format", "json").stdout)[0]
    assert (silence["alert"], silence["labels"], silence["comment"]) == (
        "errors.now",
        {"database": "orders"},
        "migration",
    )
    assert re.search(r"errors\.now +database=orders .* migration", run_alerts("silences").stdout)
    assert re.search(r"errors in orders +2 +yes", run_alerts("list").stdout)
    ended = run_alerts("unsilence", silence["id"])
    assert (ended.returncode, ended.stdout) == (0, "the silence has ended\n")
    assert run_alerts("silences").stdout == "nothing is silenced\n"
    assert "There is no silence" in run_alerts("unsilence", silence["id"]).stderr


def test_a_silence_without_a_name_applies_to_all_alerts(run_alerts: RunCommand) -> None:
    until_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 3_600))
    created = run_alerts("silence", "--until", until_time)
    assert created.stdout.startswith(f"all alerts: silenced until {until_time}Z\n")
    result = run_alerts("list").stdout
    assert len(re.findall(r" yes$", result, re.MULTILINE)) == 2
    run_alerts("unsilence", created.stdout.split()[-1])


def test_invalid_silences_are_refused(run_alerts: RunCommand) -> None:
    assert run_alerts("silence", "errors.now").returncode == 2
    assert run_alerts("silence", "--for", "1h", "--until", "2030-01-01T00:00:00Z").returncode == 2
    assert "is not NAME=VALUE" in run_alerts("silence", "--for", "1h", "--label", "database").stderr
    assert "until is invalid" in run_alerts("silence", "--until", "2020-01-01T00:00:00Z").stderr
    assert "for is invalid" in run_alerts("silence", "--for", "5").stderr


def test_an_unreachable_target_is_a_failure(run_alerts: RunCommand) -> None:
    result = run_alerts("test-target", "nowhere")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("nothing was sent to nowhere: ")
    unknown = run_alerts("test-target", "nowhere2")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "cordwood alerts: There is no target 'nowhere2'. Did you mean nowhere?\n",
    )


def test_an_unknown_alert_is_not_found(service_with_alert: Service) -> None:
    answer = service_with_alert.client.get("/api/alerts/error.now/preview")
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "request.unknown-alert")


def test_only_a_private_key_without_restrictions_sees_alerts(service_with_alert: Service) -> None:
    pinned = create_key(service_with_alert, "private", pins={"project": "acme"})
    for key in (PUBLIC, pinned, create_key(service_with_alert, "private", redact=True)):
        result = cordwood("alerts", "list", "--url", service_with_alert.url, "--key", key)
        assert (result.returncode, result.stdout) == (1, "")


def test_without_alerts_the_list_explains_how_to_define_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = cordwood("alerts", "list", "--data-dir", str(tmp_path / "data"))
    assert (result.returncode, result.stdout) == (
        0,
        "There are no alerts. One is the [alert] table of an endpoint file, or a .alert.toml file beside it.\n",
    )
