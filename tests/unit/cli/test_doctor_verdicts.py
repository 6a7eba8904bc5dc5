"""What the doctor makes of a machine's figures."""

import pytest

from cordwood.cli.doctor import (
    Verdict,
    judge_clock,
    judge_disk,
    judge_files,
    judge_memory,
    judge_tokens,
    open_files,
)

GB = 10**9
NOW = 1_767_225_600.0
PUBLIC, OLDER, PRIVATE = "LOGFLARE_PUBLIC_ACCESS_TOKEN", "LOGFLARE_API_KEY", "LOGFLARE_PRIVATE_ACCESS_TOKEN"


@pytest.mark.parametrize(
    ("free", "whole", "verdict"),
    [(50 * GB, 100 * GB, Verdict.GOOD), (5 * GB, 100 * GB, Verdict.DOUBTFUL), (GB // 10, GB, Verdict.BAD)],
)
def test_a_disk_is_judged_by_what_is_free(free: int, whole: int, verdict: Verdict) -> None:
    assert judge_disk(free, whole).verdict is verdict


@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [(4 * GB, Verdict.GOOD), (GB * 11 // 10, Verdict.DOUBTFUL), (GB // 2, Verdict.BAD), (None, Verdict.DOUBTFUL)],
)
def test_a_ceiling_of_memory_must_fit_what_may_be_used(allowed: int | None, verdict: Verdict) -> None:
    assert judge_memory(GB, allowed).verdict is verdict


@pytest.mark.parametrize(
    ("limit", "verdict"), [(65_536, Verdict.GOOD), (1024, Verdict.GOOD), (512, Verdict.DOUBTFUL), (64, Verdict.BAD)]
)
def test_too_few_open_files_are_told(limit: int, verdict: Verdict) -> None:
    assert judge_files(limit).verdict is verdict


@pytest.mark.parametrize(
    ("now", "newest", "verdict"),
    [(NOW, None, Verdict.GOOD), (NOW, NOW - 5, Verdict.GOOD), (NOW, NOW + 3600, Verdict.BAD), (0.0, None, Verdict.BAD)],
)
def test_a_clock_that_stands_before_the_last_write_is_wrong(now: float, newest: float | None, verdict: Verdict) -> None:
    assert judge_clock(now, newest).verdict is verdict


def test_tokens_that_contradict_each_other_are_told() -> None:
    assert [one.verdict for one in judge_tokens({PUBLIC: "a", OLDER: "b", PRIVATE: "c"})] == [Verdict.DOUBTFUL]
    assert [one.verdict for one in judge_tokens({PUBLIC: "a", PRIVATE: "a"})] == [Verdict.BAD]
    assert list(judge_tokens({PUBLIC: "a", OLDER: "a", PRIVATE: "c"})) == []


def test_this_machine_has_figures() -> None:
    assert open_files(None) > 0
