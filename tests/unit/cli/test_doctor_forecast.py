"""The verdict of `cordwood doctor` on the service's forecast of a full disk."""

import math

import pytest

from cordwood.cli.doctor import CheckVerdict, check_disk_forecast


@pytest.mark.parametrize(
    ("seconds", "verdict", "message"),
    [
        (3 * 3600.0, CheckVerdict.PROBLEM, "full in about 3 hours"),
        (90.0, CheckVerdict.PROBLEM, "full in about a minute"),
        (2 * 86_400.0, CheckVerdict.WARNING, "full in about 2 days"),
    ],
)
def test_a_filling_disk_is_reported_with_advice(seconds: float, verdict: CheckVerdict, message: str) -> None:
    finding = check_disk_forecast(seconds)
    assert finding is not None
    assert (finding.verdict, message in finding.observation) == (verdict, True)
    assert "limits.store_size" in finding.advice


@pytest.mark.parametrize("seconds", [math.inf, 30 * 86_400.0])
def test_a_distant_forecast_is_not_reported(seconds: float) -> None:
    assert check_disk_forecast(seconds) is None
