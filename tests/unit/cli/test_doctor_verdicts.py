"""The verdicts of `cordwood doctor` on disk, memory, open files, clock and tokens."""

from pathlib import Path

import pytest

from cordwood.cli.doctor import (
    CheckVerdict,
    check_clock,
    check_disk,
    check_key_environment_variables,
    check_memory,
    check_open_file_limit,
    open_file_limit,
    read_environment_file,
)

GB = 10**9
NOW_SECONDS = 1_767_225_600.0
PUBLIC, OLDER_PUBLIC, PRIVATE = "LOGFLARE_PUBLIC_ACCESS_TOKEN", "LOGFLARE_API_KEY", "LOGFLARE_PRIVATE_ACCESS_TOKEN"


@pytest.mark.parametrize(
    ("free", "total", "verdict"),
    [
        (50 * GB, 100 * GB, CheckVerdict.GOOD),
        (5 * GB, 100 * GB, CheckVerdict.WARNING),
        (GB // 10, GB, CheckVerdict.PROBLEM),
    ],
)
def test_a_disk_is_judged_by_its_free_space(free: int, total: int, verdict: CheckVerdict) -> None:
    assert check_disk(free, total).verdict is verdict


@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [
        (4 * GB, CheckVerdict.GOOD),
        (GB * 11 // 10, CheckVerdict.WARNING),
        (GB // 2, CheckVerdict.PROBLEM),
        (None, CheckVerdict.WARNING),
    ],
)
def test_the_memory_limit_must_fit_the_allowed_memory(allowed: int | None, verdict: CheckVerdict) -> None:
    assert check_memory(GB, allowed).verdict is verdict


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(65_536, CheckVerdict.GOOD), (1024, CheckVerdict.GOOD), (512, CheckVerdict.WARNING), (64, CheckVerdict.PROBLEM)],
)
def test_a_low_limit_on_open_files_is_reported(limit: int, verdict: CheckVerdict) -> None:
    assert check_open_file_limit(limit).verdict is verdict


@pytest.mark.parametrize(
    ("now", "newest", "verdict"),
    [
        (NOW_SECONDS, None, CheckVerdict.GOOD),
        (NOW_SECONDS, NOW_SECONDS - 5, CheckVerdict.GOOD),
        (NOW_SECONDS, NOW_SECONDS + 3600, CheckVerdict.PROBLEM),
        (0.0, None, CheckVerdict.PROBLEM),
    ],
)
def test_a_clock_before_the_last_write_is_reported(now: float, newest: float | None, verdict: CheckVerdict) -> None:
    assert check_clock(now, newest).verdict is verdict


def test_conflicting_tokens_are_reported() -> None:
    assert [
        finding.verdict for finding in check_key_environment_variables({PUBLIC: "a", OLDER_PUBLIC: "b", PRIVATE: "c"})
    ] == [CheckVerdict.WARNING]
    assert [finding.verdict for finding in check_key_environment_variables({PUBLIC: "a", PRIVATE: "a"})] == [
        CheckVerdict.PROBLEM
    ]
    assert list(check_key_environment_variables({PUBLIC: "a", OLDER_PUBLIC: "a", PRIVATE: "c"})) == []


def test_the_limit_on_open_files_of_this_process_is_read() -> None:
    assert open_file_limit(None) > 0


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=abc", "abc"),
        ("export KEY = 'abc'", "abc"),
        ("KEY=abc # the key", "abc"),
        ("KEY=abc\t#the key", "abc"),
        ('KEY="abc" # the "key"', "abc"),
        ("KEY='a # b' # c", "a # b"),
        ("KEY=a#b", "a#b"),
        ("KEY=#b", "#b"),
        ("KEY= # nothing", ""),
        ("KEY=", ""),
        ("\ufeffKEY=abc", "abc"),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", ""])
def test_a_comment_is_not_part_of_a_value_in_a_file_of_variables(
    tmp_path: Path, line: str, value: str, line_end: str
) -> None:
    (tmp_path / ".env").write_text(line + line_end, newline="")
    assert read_environment_file(tmp_path / ".env") == {"KEY": value}
