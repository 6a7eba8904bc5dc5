"""The choice of a plan's variant by the state of the store."""

import pickle

import pytest

from cordwood.sql.plan import BlockFilter, EventRange, OptionalPredicate, Plan, Variant, fixed_plan

WHICH = BlockFilter("s", ("abcdef",))
EVERY = Variant(("every ", OptionalPredicate("p", ("a",), ("b ", WHICH)), WHICH))
FLUSHED = Variant(("flushed",), EventRange.FLUSHED)
RECENT = Variant(("recent",), EventRange.RECENT)
OPTIMISTIC = Variant(("every, optimistic",), is_optimistic=True)
PLAN = Plan((EVERY, FLUSHED, OPTIMISTIC, RECENT))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((EventRange.ALL, False), EVERY),
        ((EventRange.FLUSHED, False), FLUSHED),
        ((EventRange.RECENT, False), RECENT),
        ((EventRange.ALL, True), OPTIMISTIC),
        # The optimistic variant reads all events, which are the flushed ones here.
        ((EventRange.FLUSHED, True), OPTIMISTIC),
        ((EventRange.RECENT, True), None),
    ],
)
def test_a_variant_is_chosen_by_the_state_of_the_store(
    wanted: tuple[EventRange, bool], expected: Variant | None
) -> None:
    reads, optimistic = wanted
    assert PLAN.choose(reads, optimistic=optimistic) == expected


@pytest.mark.parametrize("reads", [EventRange.ALL, EventRange.FLUSHED])
def test_a_plan_of_one_variant_has_no_optimistic_one(reads: EventRange) -> None:
    plan = fixed_plan("SELECT 1")
    assert plan.choose(reads) == Variant(("SELECT 1",))
    assert plan.choose(reads, optimistic=True) is None
    assert plan.choose(EventRange.RECENT) is None


def test_block_filters_are_found_within_optional_predicates_and_once() -> None:
    assert EVERY.block_filters() == (WHICH,)
    assert FLUSHED.block_filters() == ()


def test_a_plan_can_be_pickled_for_the_engine_process() -> None:
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
    assert PLAN.sql == "every (a OR b true)true"
