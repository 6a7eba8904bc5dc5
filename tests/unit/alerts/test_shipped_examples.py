"""The commented example alerts in the shipped endpoint files. When uncommented, each is valid and fires."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from cordwood.app.checks import catalog_sources_of, create_compile_target, read_and_check_definitions
from cordwood.model.definitions import Alert
from cordwood.settings.settings import ServeSettings, Settings
from cordwood.trials.runner import find_pages, run_pages

SHIPPED_FILES = {
    file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
    for file in (resources.files("cordwood") / "endpoints").iterdir()
    if file.name.endswith(".sql")
}
TARGETS = ("on-call",)
EDGE_EVENT = '{"event_message": "GET /%d failed", "project": "default", "metadata": {"response": {"status_code": 500}}}'
POSTGRES_EVENT = '{"event_message": "%d failed", "project": "default", "metadata": {"level": "error"}}'
# For each example, the events that make it fire, and the expected notification.
EVENTS_AND_NOTIFICATIONS = {
    "usage.api-counts": (
        "",
        '{"severity": "critical", "labels": {}, "text": "No request of the project default was counted in the last hour.", "value": 0}',
    ),
    "logs.all": (
        "\n".join(["```events cloudflare.logs.prod", *(EDGE_EVENT % number for number in [1] * 11), "```"]),
        '{"severity": "error", "labels": {}, "text": "11 requests failed in five minutes, for example: GET /1 failed", "value": 11}',
    ),
    "logs.all.otel": (
        "\n".join(["```events postgres.logs", *(POSTGRES_EVENT % number for number in range(11)), "```"]),
        '{"severity": "error", "labels": {"source": "postgres_logs"}, "text": "11 errors of postgres_logs in five minutes", "value": 11}',
    ),
}


def example_lines(name: str) -> list[str]:
    """Return the lines of the example after `[alert]`, uncommented."""
    lines = iter(SHIPPED_FILES[name].partition("*/")[0].splitlines())
    alert_lines = list(_lines_after(lines, "# [alert]"))
    assert alert_lines
    assert all(line.startswith("# ") for line in alert_lines)
    return [line[2:] for line in alert_lines]


def _lines_after(lines: Iterator[str], first: str) -> Iterator[str]:
    for line in lines:
        if line == first:
            yield from lines


def uncommented_file(name: str) -> str:
    """Return the text of the endpoint file with its example uncommented."""
    text = SHIPPED_FILES[name]
    for line in ("[alert]", *example_lines(name)):
        assert text.count(f"# {line}\n") == 1
        text = text.replace(f"# {line}\n", f"{line}\n")
    return text


def alerts_in(folder: Path) -> tuple[Alert, ...]:
    settings = Settings(serve=ServeSettings(endpoints=str(folder)))
    return tuple(read_and_check_definitions(catalog_sources_of(settings), create_compile_target(settings)).alerts)


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_an_example_is_valid_when_uncommented(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.sql").write_text(uncommented_file(name))
    (alert,) = alerts_in(tmp_path)
    assert (alert.name, alert.endpoint_name, alert.send_to) == (name, name, TARGETS)


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_an_example_is_valid_as_an_alert_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.alert.toml").write_text("\n".join([f'endpoint = "{name}"', *example_lines(name)]))
    (alert,) = alerts_in(tmp_path)
    assert (alert.name, alert.endpoint_name, alert.send_to) == ("mine", name, TARGETS)


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_an_example_fires(name: str, tmp_path: Path) -> None:
    events, notifications = EVENTS_AND_NOTIFICATIONS[name]
    clock = "```clock\n2024-05-15T12:00:00Z\n```"
    dated = events.replace('{"event_message"', '{"timestamp": "2024-05-15T11:58:00Z", "event_message"')
    page = "\n\n".join([f"# {name}", clock, dated, "## it fires", f"```alerts\n{notifications}\n```"])
    (tmp_path / "mine.alert.toml").write_text("\n".join([f'endpoint = "{name}"', *example_lines(name)]))
    (tmp_path / "mine.alert.test.md").write_text(f"{page}\n")
    settings = Settings(serve=ServeSettings(endpoints=str(tmp_path)))
    (trial,) = run_pages(settings, find_pages(tmp_path))
    assert trial.passed, trial.differences
