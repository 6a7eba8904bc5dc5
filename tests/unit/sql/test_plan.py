"""The variant of a plan that is chosen for the state of the store."""

import pickle

import pytest

from cordwood.sql.plan import BlockFilter, EventRange, OptionalPredicate, Plan, PlanVariant, plan_without_placeholders

BLOCK_FILTER = BlockFilter("s", ("abcdef",))
ALL_EVENTS = PlanVariant(("every ", OptionalPredicate("p", ("a",), ("b ", BLOCK_FILTER)), BLOCK_FILTER))
FLUSHED_EVENTS = PlanVariant(("flushed",), EventRange.FLUSHED)
RECENT_EVENTS = PlanVariant(("recent",), EventRange.RECENTLY_CACHED)
OPTIMISTIC_VARIANT = PlanVariant(("every, optimistic",), has_optimistic_redaction=True)
PLAN = Plan((ALL_EVENTS, FLUSHED_EVENTS, OPTIMISTIC_VARIANT, RECENT_EVENTS))


@pytest.mark.parametrize(
    ("wanted_variant", "expected"),
    [
        ((EventRange.ALL, False), ALL_EVENTS),
        ((EventRange.FLUSHED, False), FLUSHED_EVENTS),
        ((EventRange.RECENTLY_CACHED, False), RECENT_EVENTS),
        ((EventRange.ALL, True), OPTIMISTIC_VARIANT),
        # If all events are flushed, the optimistic variant that reads all events is used, because the plan has no
        # other.
        ((EventRange.FLUSHED, True), OPTIMISTIC_VARIANT),
        ((EventRange.RECENTLY_CACHED, True), None),
    ],
)
def test_a_variant_is_chosen_by_the_state_of_the_store(
    wanted_variant: tuple[EventRange, bool], expected: PlanVariant | None
) -> None:
    reads, optimistic = wanted_variant
    assert PLAN.find_variant_or_fallback(reads, optimistic=optimistic) == expected


@pytest.mark.parametrize("reads", [EventRange.ALL, EventRange.FLUSHED])
def test_a_plan_of_one_variant_has_no_optimistic_one(reads: EventRange) -> None:
    plan = plan_without_placeholders("SELECT 1")
    assert plan.find_variant_or_fallback(reads) == PlanVariant(("SELECT 1",))
    assert plan.find_variant_or_fallback(reads, optimistic=True) is None
    assert plan.find_variant_or_fallback(EventRange.RECENTLY_CACHED) is None


def test_each_block_filter_is_found_once_even_within_an_optional_predicate() -> None:
    assert ALL_EVENTS.block_filters() == (BLOCK_FILTER,)
    assert FLUSHED_EVENTS.block_filters() == ()


def test_a_plan_can_be_pickled_for_the_engine_process() -> None:
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
    assert PLAN.sql == "every (a OR b true)true"
