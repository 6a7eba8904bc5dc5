"""Parsing and formatting of sizes, durations and rates."""

import pytest

from cordwood.settings.quantities import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("1.5GiB", 1_610_612_736), ("64 kib", 65_536), ("0", 0), ("7b", 7), ("65536", 65_536)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12 parsecs", "-1MB", "1e3", "0x10", "1.2.3MB"])
def test_an_invalid_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="512MB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1h30m", 5400), ("250ms", 0.25), ("90d", 7_776_000), ("1.5h", 5400), ("2 w", 1_209_600), ("0", 0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "", "s", "-5s", "1h30", "5 fortnights", "1month"])
def test_a_duration_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="add a unit"):
        parse_duration(text)


def test_rates_are_per_second_minute_or_hour() -> None:
    assert parse_rate("10/s") == 10
    assert parse_rate("600 / m") == 10
    assert parse_rate("1800/h") == 0.5


@pytest.mark.parametrize("text", ["10", "0/s", "ten/s", "10/d", "", "9" * 400 + "/s", "0." + "0" * 20 + "1/s"])
def test_an_invalid_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="10/s"):
        parse_rate(text)


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 512_000_000, 64 * 2**20, 123_457, 10**13])
def test_a_formatted_size_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.5, 30.0, 900.0, 86_400.0, 604_800.0])
def test_a_formatted_duration_is_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("rate", [10.0, 0.5, 1 / 60, 1 / 3600])
def test_a_formatted_rate_is_read_back(rate: float) -> None:
    assert parse_rate(format_rate(rate)) == pytest.approx(rate)
