"""Conformance with BigQuery's documented answers on both engines, compared with the committed baseline."""

from collections import Counter

import pytest

from tests.conformance import baseline
from tests.conformance.outcomes import ERROR, REFUSED, RIGHT, WRONG, Found

# The minimum share of right and the maximum share of wrong answers in a baseline.
LIMITS = {"duckdb": (0.99, 0.004), "clickhouse": (0.97, 0.008)}


def test_no_case_gets_worse(found: Found) -> None:
    regressions = baseline.regressions(baseline.read()[found.engine], found.outcomes)
    assert not regressions, "\n".join(f"{line} ({found.details.get(line.split(': ')[0])})" for line in regressions)


def test_a_case_that_gets_better_is_in_the_baseline(found: Found) -> None:
    known = baseline.read()[found.engine]
    improvements = baseline.improvements(known, found.outcomes)
    assert not improvements, f"run `{baseline.RENEW}` and commit the file:\n" + "\n".join(improvements)
    assert known.keys() == found.outcomes.keys(), f"cases were added or dropped: run `{baseline.RENEW}`"


@pytest.mark.parametrize("engine", LIMITS)
def test_the_baseline_has_few_wrong_answers(engine: str) -> None:
    outcomes = baseline.read()[engine]
    counted = Counter(outcomes.values())
    min_right, max_wrong = LIMITS[engine]
    assert counted[RIGHT] / len(outcomes) >= min_right, counted
    assert counted[WRONG] / len(outcomes) <= max_wrong, counted


def test_changes_of_outcomes_are_listed() -> None:
    before = {"a": RIGHT, "b": REFUSED, "c": ERROR, "d": WRONG, "e": RIGHT, "gone": RIGHT}
    now = {"a": REFUSED, "b": RIGHT, "c": WRONG, "d": ERROR, "e": RIGHT, "new": WRONG}
    assert baseline.regressions(before, now) == ["a: right -> refused", "c: error -> wrong"]
    assert baseline.improvements(before, now) == ["b: refused -> right", "d: wrong -> error"]


def test_compiled_statements_pass_the_isolation_check(found: Found) -> None:
    assert not found.breaches
    # Statements that the engine cannot parse, which are also counted as errors.
    assert len(found.unreadable) <= 1, found.unreadable
