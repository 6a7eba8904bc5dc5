"""The forecast of a full disk, and when its warnings are logged."""

import math
from itertools import pairwise

import pytest

from cordwood.observe.disk import DiskForecast

GB = 10**9


class ForecastedDisk:
    """A forecast with a manual clock, a free space that the test sets, and a record of its warnings."""

    def __init__(self, free_bytes: float) -> None:
        self.now = 1000.0
        self.free = free_bytes
        self.warnings: list[tuple[float, str]] = []
        self.forecast = DiskForecast(
            lambda: self.free, lambda: self.now, lambda sentence: self.warnings.append((self.now, sentence))
        )

    def write(self, seconds: float, bytes_a_second: float) -> None:
        for _ in range(round(seconds / 30)):
            self.now += 30
            self.free -= 30 * bytes_a_second
            self.forecast.take_sample()


def test_steady_growth_is_forecast_and_warned_of_with_advice() -> None:
    disk = ForecastedDisk(100 * GB)
    disk.write(1800, 98.2 * GB / (3 * 3600))
    assert disk.forecast.seconds_until_full == pytest.approx(disk.free / (98.2 * GB / (3 * 3600)), rel=0.01)
    assert disk.warnings[0][1].startswith("The disk is full in about 3 hours at the pace of the last hour. ")
    assert "limits.store_size" in disk.warnings[0][1]


def test_no_warning_if_the_disk_does_not_fill_within_a_day() -> None:
    for pace in (0.0, -1e6, 100 * GB / (48 * 3600)):
        disk = ForecastedDisk(100 * GB)
        disk.write(4 * 3600, pace)
        assert disk.warnings == []
    assert math.isinf(ForecastedDisk(GB).forecast.seconds_until_full)


def test_no_forecast_from_less_than_five_minutes() -> None:
    disk = ForecastedDisk(10 * GB)
    disk.write(270, 1e7)
    assert disk.warnings == []
    assert math.isinf(disk.forecast.seconds_until_full)


def test_alternating_growth_and_shrinkage_is_not_a_trend() -> None:
    disk = ForecastedDisk(5 * GB)
    disk.write(3600, 0)
    for _ in range(60):
        disk.write(60, 1e6)
        disk.write(30, -2e6)
    assert disk.warnings == []


def test_the_warning_is_repeated_each_hour_and_at_half_of_the_remaining_time() -> None:
    disk = ForecastedDisk(100 * GB)
    disk.write(20 * 3600, 95 * GB / (20 * 3600))
    times = [at for at, _ in disk.warnings]
    assert 20 <= len(times) < 30
    assert all(later - earlier <= 3630 for earlier, later in pairwise(times))


def test_a_nearly_full_disk_is_warned_of_without_any_growth() -> None:
    disk = ForecastedDisk(0.1 * GB)
    disk.write(60, 0)
    assert disk.warnings[0][1].startswith("The disk is nearly full. 0.1 GB are free.")


def test_no_further_warning_after_space_was_freed() -> None:
    disk = ForecastedDisk(10 * GB)
    disk.write(3600, 10 * GB / 7200)
    count = len(disk.warnings)
    disk.free = 500 * GB
    disk.write(3600, 0)
    assert len(disk.warnings) == count
