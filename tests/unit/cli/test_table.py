"""Tables of rows in the terminal: alignment, widths, vertical records and error excerpts."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cli.tables import TableStyle, display_width, format_table, source_excerpt


def test_texts_are_left_aligned_and_numbers_right_aligned() -> None:
    rows = [{"path": "/a", "count": 5, "share": 0.5}, {"path": "/long", "count": 10, "share": 1}]
    assert format_table(rows).splitlines() == [
        "path   count  share",
        "-----  -----  -----",
        "/a         5    0.5",
        "/long     10      1",
    ]


def test_timestamps_are_formatted_and_other_integers_are_not() -> None:
    (_, _, line) = format_table([{"timestamp": 1767225600123456, "count": 1767225600123456}]).splitlines()
    assert line == "2026-01-01T00:00:00.123456Z  1767225600123456"


def test_null_is_empty_and_nested_values_are_json() -> None:
    (_, _, line) = format_table([{"a": None, "b": [{"c": 1}], "d": True}]).splitlines()
    assert line.split() == ['[{"c":', "1}]", "true"]


def test_long_and_multiline_texts_are_cut_to_one_line() -> None:
    printed = format_table([{"message": "first\nsecond\t" + "x" * 200}]).splitlines()
    assert len(printed) == 3
    assert printed[2].startswith("first second x")
    assert printed[2].endswith("…")
    assert len(printed[2]) == 80


def test_an_empty_result_is_printed_as_no_rows() -> None:
    assert format_table([]) == "no rows"


RANDOM_ROWS = st.dictionaries(
    st.text(min_size=1, max_size=30), st.none() | st.integers() | st.text(max_size=200), max_size=8
)


@given(st.lists(RANDOM_ROWS, min_size=1, max_size=5), st.integers(20, 200))
def test_lines_fit_the_terminal_and_hold_no_control_characters(rows: list[dict[str, object]], width: int) -> None:
    printed = format_table(rows, TableStyle(width))
    assert printed.replace("\n", "").isprintable()
    if not printed.startswith("-- row 1") and any(rows):
        assert all(display_width(line) <= width for line in printed.split("\n"))
        assert printed.count("\n") == len(rows) + 1


def test_the_widest_columns_are_narrowed_first() -> None:
    rows = [{"id": "abc", "level": "error", "message": "x" * 100, "path": "y" * 30}]
    (_, rule, line) = format_table(rows, TableStyle(60)).splitlines()
    assert [len(part) for part in rule.split()] == [3, 5, 23, 23]
    assert line.startswith("abc  error  xxx")


def test_rows_may_have_different_columns() -> None:
    assert format_table([{"a": 1}, {"b": "x"}]).splitlines()[0].split() == ["a", "b"]


def test_vertical_records_show_uncut_values() -> None:
    printed = format_table([{"id": "a", "message": "x" * 300}], TableStyle(is_vertical=True))
    assert printed.splitlines() == ["-- row 1", "id       a", f"message  {'x' * 300}"]


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [display_width(text) for text in ("abc", "漢字", "e\u0301", "\u200b")] == [3, 4, 1, 0]
    (head, _, line) = format_table([{"a": "漢字", "b": "x"}], TableStyle(80)).splitlines()
    assert (head, line) == ("a     b", "漢字  x")


def test_an_excerpt_has_its_caret_below_the_column() -> None:
    assert source_excerpt("select\n  a, b", 2, 6) == "    a, b\n       ^"
    assert source_excerpt("漢字 x", 1, 4) == "  漢字 x\n       ^"
    assert source_excerpt("select", 9, 1) == ""
    line, caret = source_excerpt("x" * 500 + "!" + "y" * 500, 1, 501).split("\n")
    assert line[caret.index("^")] == "!"
