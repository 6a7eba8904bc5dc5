"""The command `cordwood doctor`, with a running service and without one."""

from pathlib import Path

import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Start
from tests.journey.test_cli_clients import Result, cordwood


def lines_with_mark(result: Result, mark: str) -> list[str]:
    return [line.removeprefix(mark).strip() for line in result.stdout.splitlines() if line.startswith(mark)]


def test_a_working_service_passes_with_the_keys_of_its_dashboards(start: Start, tmp_path: Path) -> None:
    service = start()
    environment = tmp_path / "dashboards.env"
    environment.write_text(
        f"# keys\nLOGFLARE_PRIVATE_ACCESS_TOKEN='{PRIVATE}'\nexport LOGFLARE_PUBLIC_ACCESS_TOKEN={PUBLIC}\nOTHER=1\n"
    )
    completed = cordwood("doctor", "--data-dir", str(service.data_dir), "--env", str(environment))
    passed_lines = lines_with_mark(completed, "ok")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "keys: LOGFLARE_PRIVATE_ACCESS_TOKEN is in force." in passed_lines
    assert "keys: LOGFLARE_PUBLIC_ACCESS_TOKEN is in force." in passed_lines
    assert "round trip: an event was sent, and was in the next answer." in passed_lines
    assert any(line.startswith("data folder: ") for line in passed_lines)
    completed_with_private_key = cordwood("doctor", "--url", service.url, "--key", PRIVATE)
    assert (completed_with_private_key.returncode, len(lines_with_mark(completed_with_private_key, "PROBLEM"))) == (
        0,
        0,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOGFLARE_PRIVATE_ACCESS_TOKEN", PUBLIC),
        ("LOGFLARE_PRIVATE_ACCESS_TOKEN", "mistyped"),
        ("LOGFLARE_PUBLIC_ACCESS_TOKEN", "mistyped"),
    ],
)
def test_a_refused_key_is_reported_with_a_remedy(start: Start, tmp_path: Path, name: str, value: str) -> None:
    service = start()
    environment = tmp_path / "dashboards.env"
    environment.write_text(f"{name}={value}\n")
    completed = cordwood("doctor", "--url", service.url, "--key", PRIVATE, "--env", str(environment))
    assert completed.returncode == 1
    assert len(lines_with_mark(completed, "PROBLEM")) == 1
    assert f"{name} is refused" in completed.stdout
    assert "cordwood keys create" in completed.stdout


def test_metrics_include_free_disk_space_and_its_forecast(start: Start) -> None:
    completed = start().client.get("/metrics").text
    assert "\ncordwood_disk_full_seconds +Inf\n" in completed
    assert float(completed.split("\ncordwood_disk_free_bytes ")[1].split("\n")[0]) > 0


def test_a_key_that_may_not_query_fails_the_round_trip(start: Start) -> None:
    completed = cordwood("doctor", "--url", start().url, "--key", PUBLIC)
    assert completed.returncode == 1
    assert lines_with_mark(completed, "PROBLEM")[0].startswith("round trip: This key may not query")


def test_the_doctor_shows_the_memory_ceiling_of_the_running_service(start: Start) -> None:
    service = start("--memory", "300MB")
    completed = cordwood("doctor", "--data-dir", str(service.data_dir), CORDWOOD_LIMITS_MEMORY="900GB")
    assert completed.returncode == 0, completed.stdout
    assert any(line.startswith("memory: the ceiling is 0.3 GB, ") for line in lines_with_mark(completed, "ok")), (
        completed.stdout
    )
    service.stop()
    completed = cordwood("doctor", "--data-dir", str(service.data_dir), CORDWOOD_LIMITS_MEMORY="900GB")
    assert any(
        line.startswith("memory: the ceiling is 900.0 GB, ") for line in lines_with_mark(completed, "PROBLEM")
    ), completed.stdout


def test_without_a_service_the_doctor_explains_how_to_start_it(tmp_path: Path) -> None:
    completed = cordwood("doctor", "--data-dir", str(tmp_path / "none"))
    assert completed.returncode == 1
    assert "Start one: cordwood serve" in completed.stdout
    assert not (tmp_path / "none").exists()
    missing_folder_result = cordwood("doctor", "--url", "http://127.0.0.1:9", "--key", PRIVATE)
    assert (missing_folder_result.returncode, "No service answers" in missing_folder_result.stdout) == (1, True)
