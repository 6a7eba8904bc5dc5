"""A disk that fills is foreseen while there is time, and told of now and then."""

import math
from itertools import pairwise

import pytest

from cordwood.observe.disk import DiskForecast

GB = 10**9


class Disk:
    """A clock, what is free, and what was told."""

    def __init__(self, free_bytes: float) -> None:
        self.now = 1000.0
        self.free = free_bytes
        self.told: list[tuple[float, str]] = []
        self.forecast = DiskForecast(
            lambda: self.free, lambda: self.now, lambda sentence: self.told.append((self.now, sentence))
        )

    def live(self, seconds: float, bytes_a_second: float) -> None:
        for _ in range(round(seconds / 30)):
            self.now += 30
            self.free -= 30 * bytes_a_second
            self.forecast.sample()


def test_a_steady_pace_is_foreseen_and_told_with_what_to_do() -> None:
    disk = Disk(100 * GB)
    disk.live(1800, 98.2 * GB / (3 * 3600))
    assert disk.forecast.seconds_left == pytest.approx(disk.free / (98.2 * GB / (3 * 3600)), rel=0.01)
    assert disk.told[0][1].startswith("The disk is full in about 3 hours at the pace of the last hour. ")
    assert "limits.store_size" in disk.told[0][1]


def test_a_disk_that_does_not_fill_or_not_today_is_not_told_of() -> None:
    for pace in (0.0, -1e6, 100 * GB / (48 * 3600)):
        disk = Disk(100 * GB)
        disk.live(4 * 3600, pace)
        assert disk.told == []
    assert math.isinf(Disk(GB).forecast.seconds_left)


def test_a_moment_tells_nothing_of_the_hours_to_come() -> None:
    disk = Disk(10 * GB)
    disk.live(270, 1e7)
    assert disk.told == []
    assert math.isinf(disk.forecast.seconds_left)


def test_what_comes_and_goes_is_no_trend() -> None:
    disk = Disk(5 * GB)
    disk.live(3600, 0)
    for _ in range(60):
        disk.live(60, 1e6)
        disk.live(30, -2e6)
    assert disk.told == []


def test_it_is_told_again_each_hour_and_when_half_of_the_time_is_gone() -> None:
    disk = Disk(100 * GB)
    disk.live(20 * 3600, 95 * GB / (20 * 3600))
    times = [at for at, _ in disk.told]
    assert 20 <= len(times) < 30
    assert all(later - earlier <= 3630 for earlier, later in pairwise(times))


def test_a_disk_that_is_nearly_full_is_told_of_whatever_its_pace() -> None:
    disk = Disk(0.1 * GB)
    disk.live(60, 0)
    assert disk.told[0][1].startswith("The disk is nearly full. 0.1 GB are free.")


def test_after_room_was_made_the_next_warning_comes_at_once() -> None:
    disk = Disk(10 * GB)
    disk.live(3600, 10 * GB / 7200)
    count = len(disk.told)
    disk.free = 500 * GB
    disk.live(3600, 0)
    assert len(disk.told) == count
