"""Documented answers of BigQuery through the whole compiler, on both engines, against the committed baseline."""

from collections import Counter

import pytest

from tests.conformance import baseline
from tests.conformance.outcomes import ERROR, REFUSED, RIGHT, WRONG, Found

# The least share of right answers, and the greatest of wrong ones, that a baseline may have.
LIMITS = {"duckdb": (0.99, 0.004), "clickhouse": (0.97, 0.008)}


def test_no_case_gets_worse(found: Found) -> None:
    worse = baseline.worse(baseline.read()[found.engine], found.outcomes)
    assert not worse, "\n".join(f"{line} ({found.details.get(line.split(': ')[0])})" for line in worse)


def test_a_case_that_gets_better_is_in_the_baseline(found: Found) -> None:
    known = baseline.read()[found.engine]
    better = baseline.better(known, found.outcomes)
    assert not better, f"run `{baseline.RENEW}` and commit the file:\n" + "\n".join(better)
    assert known.keys() == found.outcomes.keys(), f"cases were added or dropped: run `{baseline.RENEW}`"


@pytest.mark.parametrize("engine", LIMITS)
def test_the_baseline_has_few_cases_that_are_not_right(engine: str) -> None:
    outcomes = baseline.read()[engine]
    counted = Counter(outcomes.values())
    least_right, most_wrong = LIMITS[engine]
    assert counted[RIGHT] / len(outcomes) >= least_right, counted
    assert counted[WRONG] / len(outcomes) <= most_wrong, counted


def test_a_change_of_outcome_is_named() -> None:
    before = {"a": RIGHT, "b": REFUSED, "c": ERROR, "d": WRONG, "e": RIGHT, "gone": RIGHT}
    now = {"a": REFUSED, "b": RIGHT, "c": WRONG, "d": ERROR, "e": RIGHT, "new": WRONG}
    assert baseline.worse(before, now) == ["a: right -> refused", "c: error -> wrong"]
    assert baseline.better(before, now) == ["b: refused -> right", "d: wrong -> error"]


def test_statements_pass_the_check_by_the_parser_of_the_engine(found: Found) -> None:
    assert not found.breaches
    # What the compiler makes and the engine cannot read fails there as well, with the engine's error.
    assert len(found.unreadable) <= 1, found.unreadable
