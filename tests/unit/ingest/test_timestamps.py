"""Timestamps are parsed in all formats that senders use."""

import pytest

from cordwood.ingest.build_events import parse_timestamp_us

UNIX_SECONDS = 1_690_000_000


@pytest.mark.parametrize(
    ("sent", "microseconds"),
    [
        ("2023-07-22T04:26:40Z", UNIX_SECONDS * 10**6),
        ("2023-07-22T04:26:40+00:00", UNIX_SECONDS * 10**6),
        ("2023-07-22T06:26:40+0200", UNIX_SECONDS * 10**6),
        ("2023-07-22 04:26:40", UNIX_SECONDS * 10**6),
        ("2023-07-22T04:26:40.123456789Z", UNIX_SECONDS * 10**6 + 123_456),
        ("2023-07-22T04:26:40.1Z", UNIX_SECONDS * 10**6 + 100_000),
        ("2023-07-22T04:26:40,5Z", UNIX_SECONDS * 10**6 + 500_000),
        ("2023-07-22t04:26:40z", UNIX_SECONDS * 10**6),
        ("2023-07-22 04:26:40.149 UTC", UNIX_SECONDS * 10**6 + 149_000),
        ("2023-07-22 06:26:40 +02:00", UNIX_SECONDS * 10**6),
        ("2023-07-22", 1_689_984_000 * 10**6),
        ("2016-12-31T23:59:60Z", 1_483_228_799 * 10**6 + 999_999),
        ("Sat, 22 Jul 2023 04:26:40 GMT", UNIX_SECONDS * 10**6),
        ("Sat, 22 Jul 2023 06:26:40 +0200", UNIX_SECONDS * 10**6),
        ("22/Jul/2023:06:26:40 +0200", UNIX_SECONDS * 10**6),
        ("1690000000", UNIX_SECONDS * 10**6),
        ("1690000000.25", UNIX_SECONDS * 10**6 + 250_000),
        ("1690000000123456789", UNIX_SECONDS * 10**6 + 123_456),
        ("1796010112345", 1_796_010_112_345_000),
        ("+1796010112345", 1_796_010_112_345_000),
        (" 1796010112345 ", 1_796_010_112_345_000),
        ("1796010112345.5", 1_796_010_112_345_500),
        ("18000101235959", 18_000_101_235_959_000),
        ("179601011234501", 179_601_011_234_501),
        ("179601011234501.5", 179_601_011_234_501),
        ("17960101123", 17_960_101_123 * 10**6),
        ("20230722", 1_689_984_000 * 10**6),
        ("20230722T042640Z", UNIX_SECONDS * 10**6),
        (UNIX_SECONDS, UNIX_SECONDS * 10**6),
        (UNIX_SECONDS * 1000 + 7, UNIX_SECONDS * 10**6 + 7_000),
        (UNIX_SECONDS * 10**6 + 7, UNIX_SECONDS * 10**6 + 7),
        (UNIX_SECONDS * 10**9 + 7_999, UNIX_SECONDS * 10**6 + 7),
        (1_690_000_000.9, UNIX_SECONDS * 10**6 + 900_000),
        (1_690_000_000_123.5, UNIX_SECONDS * 10**6 + 123_500),
    ],
)
def test_a_timestamp_is_parsed_to_the_microsecond(sent: str | float, microseconds: int) -> None:
    assert parse_timestamp_us(sent) == microseconds


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "yesterday",
        "2023-13-01",
        "1796010112345Z",
        "-1796010112345",
        0,
        -5,
        float("nan"),
        float("inf"),
        10**30,
        "9" * 40,
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_a_value_that_is_not_a_timestamp_is_none(sent: str | float | None) -> None:
    assert parse_timestamp_us(sent) is None
