"""The choice of a plan's variant by the state of the store."""

import pickle

import pytest

from cordwood.sql.plan import BlockFilter, OptionalPredicate, Plan, Reads, Variant, fixed_plan

WHICH = BlockFilter("s", ("abcdef",))
EVERY = Variant(("every ", OptionalPredicate("p", ("a",), ("b ", WHICH)), WHICH))
FLUSHED = Variant(("flushed",), Reads.FLUSHED)
RECENT = Variant(("recent",), Reads.RECENT)
OPTIMISTIC = Variant(("every, optimistic",), is_optimistic=True)
PLAN = Plan((EVERY, FLUSHED, OPTIMISTIC, RECENT))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((Reads.ALL, False), EVERY),
        ((Reads.FLUSHED, False), FLUSHED),
        ((Reads.RECENT, False), RECENT),
        ((Reads.ALL, True), OPTIMISTIC),
        # The optimistic variant reads all events, which are the flushed ones here.
        ((Reads.FLUSHED, True), OPTIMISTIC),
        ((Reads.RECENT, True), None),
    ],
)
def test_a_variant_is_chosen_by_the_state_of_the_store(wanted: tuple[Reads, bool], expected: Variant | None) -> None:
    reads, optimistic = wanted
    assert PLAN.choose(reads, optimistic=optimistic) == expected


@pytest.mark.parametrize("reads", [Reads.ALL, Reads.FLUSHED])
def test_a_plan_of_one_variant_has_no_optimistic_one(reads: Reads) -> None:
    plan = fixed_plan("SELECT 1")
    assert plan.choose(reads) == Variant(("SELECT 1",))
    assert plan.choose(reads, optimistic=True) is None
    assert plan.choose(Reads.RECENT) is None


def test_block_filters_are_found_within_optional_predicates_and_once() -> None:
    assert EVERY.block_filters() == (WHICH,)
    assert FLUSHED.block_filters() == ()


def test_a_plan_can_be_pickled_for_the_engine_process() -> None:
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
    assert PLAN.sql == "every (a OR b true)true"
