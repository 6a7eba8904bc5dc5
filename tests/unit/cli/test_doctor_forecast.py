"""The doctor tells of a disk that fills, by the service's own forecast."""

import math

import pytest

from cordwood.cli.doctor import Verdict, judge_forecast


@pytest.mark.parametrize(
    ("seconds", "verdict", "told"),
    [
        (3 * 3600.0, Verdict.BAD, "full in about 3 hours"),
        (90.0, Verdict.BAD, "full in about a minute"),
        (2 * 86_400.0, Verdict.DOUBTFUL, "full in about 2 days"),
    ],
)
def test_a_disk_that_fills_is_told_with_what_to_do(seconds: float, verdict: Verdict, told: str) -> None:
    finding = judge_forecast(seconds)
    assert finding is not None
    assert (finding.verdict, told in finding.seen) == (verdict, True)
    assert "limits.store_size" in finding.advice


@pytest.mark.parametrize("seconds", [math.inf, 30 * 86_400.0])
def test_nothing_is_told_of_what_is_far_away(seconds: float) -> None:
    assert judge_forecast(seconds) is None
