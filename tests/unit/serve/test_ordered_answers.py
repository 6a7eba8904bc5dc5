"""An answer that is truncated and has no total order is run again in a total order.

Therefore the answer has a cursor for its next page.
"""

from collections.abc import Iterable

import msgspec

from cordwood.errors import EngineUnreachable, OutOfMemory, QueryOutOfTime
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint
from cordwood.model.key import Caller
from cordwood.serve.paging import ORDERED_RUN_RETRY_SECONDS, OrderedRunHistory
from cordwood.serve.query_request import QueryRequest
from tests.unit.serve.harness import (
    CALLER,
    UNCACHED_ENDPOINT,
    WARMED_ENDPOINT,
    ServeHarness,
    complete_answer,
    make_request,
    run_with_harness,
)

UNORDERED_NOTICE = "the answer is cut, and its rows are in no total order: add page_size= to page through all of them"
# A cached endpoint that is not kept warm. Its rows have no ids, and its answer may be truncated.
ENDPOINT_WITHOUT_WARMING = msgspec.structs.replace(WARMED_ENDPOINT, warm_seconds=None)


def make_page_request(endpoint: Endpoint = UNCACHED_ENDPOINT) -> QueryRequest:
    return msgspec.structs.replace(make_request(endpoint), returns_next_cursor=True)


def fail_to_order(harness: ServeHarness, fault: Exception) -> None:
    """Let every run with an ORDER BY fail."""

    def rows(number: int) -> Iterable[list[Row]]:
        if " ORDER BY " in harness.engine.questions[-1].statement.sql:
            raise fault
        return [[(number,)]]

    harness.engine.rows = rows


def test_a_truncated_answer_is_run_again_in_a_total_order() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        answer = complete_answer(await harness.answers.answer(make_page_request()))
        assert harness.engine.question_count == 2
        first, second = (question.statement.sql for question in harness.engine.questions)
        assert "ORDER BY" not in first
        assert "ORDER BY" in second
        assert answer.receipt.next_position is not None
        assert answer.receipt.notices == ()
        # The engine time in the receipt is the sum of both runs.
        assert answer.receipt.engine_seconds == 0.002

    run_with_harness(test)


def test_an_answer_that_is_not_truncated_is_run_once() -> None:
    async def test(harness: ServeHarness) -> None:
        assert complete_answer(await harness.answers.answer(make_page_request())).receipt.next_position is None
        assert harness.engine.question_count == 1

    run_with_harness(test)


def test_an_answer_that_cannot_have_a_cursor_is_run_once() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        answer = complete_answer(await harness.answers.answer(make_request(UNCACHED_ENDPOINT)))
        assert (harness.engine.question_count, answer.receipt.notices) == (1, ())

    run_with_harness(test)


def test_the_ordered_answer_is_cached() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        first, second = [
            complete_answer(await harness.answers.answer(make_page_request(ENDPOINT_WITHOUT_WARMING))) for _ in range(2)
        ]
        assert first.receipt.next_position is not None
        assert second is first
        assert harness.engine.question_count == 2

    run_with_harness(test)


def test_a_failed_ordered_run_leaves_a_notice_and_is_not_repeated_soon() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        fail_to_order(harness, OutOfMemory("too much"))
        answers = [complete_answer(await harness.answers.answer(make_page_request())) for _ in range(2)]
        for answer in answers:
            assert answer.receipt.truncated_by is not None
            assert answer.receipt.next_position is None
            assert answer.receipt.notices == (UNORDERED_NOTICE,)
        assert [answer.body for answer in answers] == [b'{"result":[{"n":1}]}', b'{"result":[{"n":3}]}']
        assert harness.engine.question_count == 3

    run_with_harness(test)


def test_a_failed_ordered_run_of_one_caller_does_not_affect_others() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        fail_to_order(harness, OutOfMemory("too much"))
        await harness.answers.answer(make_page_request())
        harness.engine.rows = lambda number: [[(number,)]]
        other = msgspec.structs.replace(make_page_request(), caller=Caller("key-2", CALLER.scopes))
        assert complete_answer(await harness.answers.answer(other)).receipt.next_position is not None
        assert complete_answer(await harness.answers.answer(make_page_request())).receipt.next_position is None

    run_with_harness(test)


def test_an_unreachable_engine_does_not_count_as_a_failed_ordered_run() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        fail_to_order(harness, EngineUnreachable("gone"))
        for _ in range(2):
            answer = complete_answer(await harness.answers.answer(make_page_request()))
            assert answer.receipt.notices == (UNORDERED_NOTICE,)
        assert harness.engine.question_count == 4

    run_with_harness(test)


def test_a_query_is_ordered_at_once_while_its_answers_are_truncated() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        for number in (2, 3):
            assert complete_answer(await harness.answers.answer(make_page_request())).receipt.next_position is not None
            assert harness.engine.question_count == number
        harness.engine.truncated = False
        for number in (4, 5):
            assert complete_answer(await harness.answers.answer(make_page_request())).receipt.next_position is None
            assert harness.engine.question_count == number
        ordered = [" ORDER BY " in question.statement.sql for question in harness.engine.questions]
        assert ordered == [False, True, True, True, False]

    run_with_harness(test)


def test_a_query_that_can_no_longer_be_ordered_is_answered_without_order() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        await harness.answers.answer(make_page_request())
        fail_to_order(harness, OutOfMemory("too much"))
        for number in (4, 5):
            assert complete_answer(await harness.answers.answer(make_page_request())).receipt.notices == (
                UNORDERED_NOTICE,
            )
            assert harness.engine.question_count == number

    run_with_harness(test)


def test_the_time_of_both_runs_is_limited() -> None:
    async def test(harness: ServeHarness) -> None:
        job = await harness.answers._create_job(make_page_request())
        total = job.limits.timeout_seconds
        assert total > 10
        now = 0.0
        orders = OrderedRunHistory(lambda: now)
        assert orders.ordered_first_run_timeout_seconds(job) is None
        assert orders.ordered_rerun_timeout_seconds(job, 0.01) == 1.0
        assert orders.ordered_rerun_timeout_seconds(job, 2.0) == 4.0
        assert orders.ordered_rerun_timeout_seconds(job, total - 1) == 1.0
        orders.record_run(job, 3.0)
        assert orders.ordered_first_run_timeout_seconds(job) == 6.0
        orders.record_run(job, total)
        assert orders.ordered_first_run_timeout_seconds(job) == total
        orders.record_run(job, None)
        assert (orders.ordered_first_run_timeout_seconds(job), orders.ordered_rerun_timeout_seconds(job, 2.0)) == (
            None,
            None,
        )
        now = ORDERED_RUN_RETRY_SECONDS + 1
        assert orders.ordered_rerun_timeout_seconds(job, 2.0) == 4.0

    run_with_harness(test)


def test_an_ordered_run_that_takes_too_long_leaves_the_first_answer() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        fail_to_order(harness, QueryOutOfTime("too long"))
        assert complete_answer(await harness.answers.answer(make_page_request())).receipt.notices == (UNORDERED_NOTICE,)

    run_with_harness(test)
