"""Rows as people like to read them."""

from cordwood.cli.tables import table


def test_texts_stand_to_the_left_and_numbers_to_the_right() -> None:
    rows = [{"path": "/a", "count": 5, "share": 0.5}, {"path": "/long", "count": 10, "share": 1}]
    assert table(rows).splitlines() == [
        "path   count  share",
        "-----  -----  -----",
        "/a         5    0.5",
        "/long     10      1",
    ]


def test_a_timestamp_is_a_time_and_a_count_stays_one() -> None:
    (_, _, line) = table([{"timestamp": 1767225600123456, "count": 1767225600123456}]).splitlines()
    assert line == "2026-01-01T00:00:00.123456Z  1767225600123456"


def test_null_is_nothing_and_nested_values_are_json() -> None:
    (_, _, line) = table([{"a": None, "b": [{"c": 1}], "d": True}]).splitlines()
    assert line.split() == ['[{"c":', "1}]", "true"]


def test_long_and_broken_lines_are_kept_to_one() -> None:
    told = table([{"message": "first\nsecond\t" + "x" * 200}]).splitlines()
    assert len(told) == 3
    assert told[2].startswith("first second x")
    assert told[2].endswith("…")
    assert len(told[2]) == 80


def test_no_rows_are_said_in_words() -> None:
    assert table([]) == "no rows"
