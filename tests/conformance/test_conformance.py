"""Both engines give BigQuery's documented answers, except for the cases in the committed baseline."""

from collections import Counter

import pytest

from tests.conformance import baseline
from tests.conformance.outcomes import ERROR, REFUSED, RIGHT, WRONG, EngineOutcomes

# For each engine, the minimum share of right answers and the maximum share of wrong answers in the baseline.
MIN_RIGHT_AND_MAX_WRONG = {"duckdb": (0.99, 0.004), "clickhouse": (0.97, 0.008)}


def test_no_case_has_a_worse_outcome_than_in_the_baseline(engine_outcomes: EngineOutcomes) -> None:
    regressions = baseline.regressions(baseline.read_baseline()[engine_outcomes.engine], engine_outcomes.outcomes)
    assert not regressions, "\n".join(
        f"{line} ({engine_outcomes.details.get(line.split(': ')[0])})" for line in regressions
    )


def test_a_case_with_a_better_outcome_is_reported_until_the_baseline_is_renewed(
    engine_outcomes: EngineOutcomes,
) -> None:
    known = baseline.read_baseline()[engine_outcomes.engine]
    improvements = baseline.improvements(known, engine_outcomes.outcomes)
    assert not improvements, f"run `{baseline.BASELINE_COMMAND}` and commit the file:\n" + "\n".join(improvements)
    assert known.keys() == engine_outcomes.outcomes.keys(), (
        f"cases were added or dropped: run `{baseline.BASELINE_COMMAND}`"
    )


@pytest.mark.parametrize("engine", MIN_RIGHT_AND_MAX_WRONG)
def test_the_baseline_has_few_wrong_answers(engine: str) -> None:
    outcomes = baseline.read_baseline()[engine]
    counted = Counter(outcomes.values())
    min_right, max_wrong = MIN_RIGHT_AND_MAX_WRONG[engine]
    assert counted[RIGHT] / len(outcomes) >= min_right, counted
    assert counted[WRONG] / len(outcomes) <= max_wrong, counted


def test_changes_of_outcomes_are_listed() -> None:
    before = {"a": RIGHT, "b": REFUSED, "c": ERROR, "d": WRONG, "e": RIGHT, "gone": RIGHT}
    now = {"a": REFUSED, "b": RIGHT, "c": WRONG, "d": ERROR, "e": RIGHT, "new": WRONG}
    assert baseline.regressions(before, now) == ["a: right -> refused", "c: error -> wrong"]
    assert baseline.improvements(before, now) == ["b: refused -> right", "d: wrong -> error"]


def test_compiled_statements_pass_the_isolation_check(engine_outcomes: EngineOutcomes) -> None:
    assert not engine_outcomes.breaches
    # The engine cannot parse these statements. Their outcome is also `error`.
    assert len(engine_outcomes.unreadable) <= 1, engine_outcomes.unreadable
