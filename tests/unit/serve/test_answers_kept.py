"""The lifetime of a cached answer with a manual clock: hit, refresh, stale, expiry, removal, new revision."""

import msgspec

from cordwood.errors import BadQueryValue, EngineUnreachable
from cordwood.model.definitions import Endpoint
from cordwood.observe.observation import CachedAnswerRefreshed
from cordwood.serve.answer import Answer, CacheOutcome
from cordwood.serve.query_request import QueryRequest
from tests.unit.serve.harness import (
    UNCACHED_ENDPOINT,
    WARMED_ENDPOINT,
    ServeHarness,
    complete_answer,
    make_request,
    run_with_harness,
    until,
)

FIRST_BODY, SECOND_BODY = b'{"result":[{"n":1}]}', b'{"result":[{"n":2}]}'
ENDPOINT_WITHOUT_WARMING = msgspec.structs.replace(WARMED_ENDPOINT, warm_seconds=None)


def cached_answer(harness: ServeHarness, request: QueryRequest) -> Answer | None:
    digest = harness.answers.cache_lookup_digest(request)
    assert digest is not None
    return harness.answers.cached_answer(digest)


def test_the_second_request_is_a_hit_with_its_age() -> None:
    async def test(harness: ServeHarness) -> None:
        first = await harness.answers.answer(make_request())
        harness.advance(10)
        second = await harness.answers.answer(make_request())
        assert (first.cache_outcome, second.cache_outcome) == (CacheOutcome.MISS, CacheOutcome.HIT)
        assert complete_answer(first).body == complete_answer(second).body == FIRST_BODY
        assert (first.age_seconds, second.age_seconds) == (0, 10)
        assert harness.engine.question_count == 1

    run_with_harness(test)


def test_a_cached_answer_is_found_synchronously() -> None:
    async def test(harness: ServeHarness) -> None:
        assert cached_answer(harness, make_request()) is None
        await harness.answers.answer(make_request())
        assert cached_answer(harness, make_request()) is not None

    run_with_harness(test)


def test_an_endpoint_without_a_cache_runs_every_time() -> None:
    async def test(harness: ServeHarness) -> None:
        answers = [await harness.answers.answer(make_request(UNCACHED_ENDPOINT)) for _ in range(2)]
        assert [answer.cache_outcome for answer in answers] == [CacheOutcome.UNCACHED] * 2
        assert harness.engine.question_count == 2
        assert harness.cache.size_bytes() == 0

    run_with_harness(test)


def test_a_no_cache_request_renews_the_cached_answer() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        fresh = await harness.answers.answer(msgspec.structs.replace(make_request(), bypasses_cache=True))
        assert fresh.cache_outcome is CacheOutcome.BYPASS_REQUESTED
        assert await harness.body(make_request()) == SECOND_BODY

    run_with_harness(test)


def test_an_error_is_not_cached() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.fails_with = BadQueryValue("division by zero")
        for _ in range(2):
            try:
                await harness.answers.answer(make_request())
            except BadQueryValue:
                continue
        assert harness.engine.question_count == 2
        assert harness.cache.size_bytes() == 0

    run_with_harness(test)


def test_an_answer_is_refreshed_before_it_is_300_seconds_old_and_stays_a_hit() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        assert await harness.tick(269) == 0
        assert await harness.tick(30) == 1
        hit = await harness.answers.answer(make_request())
        assert (hit.cache_outcome, complete_answer(hit).body, hit.age_seconds) == (CacheOutcome.HIT, SECOND_BODY, 0)
        assert await harness.tick(269) == 0
        assert await harness.tick(30) == 1

    run_with_harness(test)


def test_refreshes_of_entries_made_together_are_spread() -> None:
    async def test(harness: ServeHarness) -> None:
        for number in range(40):
            await harness.answers.answer(make_request(project=str(number)))
        started = [await harness.tick(1) for _ in range(300)]
        assert sum(started) == 40
        assert max(started) < 10

    run_with_harness(test)


def test_the_old_answer_is_served_during_a_refresh() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.engine.hold()
        harness.advance(299)
        [refresh] = harness.answers.start_due_refreshes()
        assert (await harness.answers.answer(make_request())).cache_outcome is CacheOutcome.HIT
        assert harness.answers.start_due_refreshes() == []
        harness.engine.release()
        await refresh
        assert await harness.body(make_request()) == SECOND_BODY

    run_with_harness(test)


def test_a_failed_refresh_leaves_a_stale_answer() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.engine.fails_with = EngineUnreachable("gone")
        await harness.tick(299)
        harness.advance(2)
        answer = await harness.answers.answer(make_request())
        assert (answer.cache_outcome, complete_answer(answer).body, answer.age_seconds) == (
            CacheOutcome.STALE,
            FIRST_BODY,
            301,
        )
        refreshes = [note for note in harness.notes.all if isinstance(note, CachedAnswerRefreshed)]
        assert [note.outcome for note in refreshes] == ["engine.unreachable"]

    run_with_harness(test)


def test_a_failed_refresh_is_retried_with_backoff() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.engine.fails_with = EngineUnreachable("gone")
        await harness.tick(299)
        tried_at = []
        for second in range(1, 400):
            if await harness.tick(1):
                tried_at.append(second)
            await harness.answers.answer(make_request())
        assert tried_at == [10, 30, 70, 130, 190, 250, 310, 370]
        harness.engine.fails_with = None
        await harness.tick(31)
        answer = await harness.answers.answer(make_request())
        assert (answer.cache_outcome, answer.age_seconds) == (CacheOutcome.HIT, 0)

    run_with_harness(test)


def test_a_stale_answer_expires_at_900_seconds() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.advance(899)
        assert (await harness.answers.answer(make_request())).cache_outcome is CacheOutcome.HIT
        harness.advance(1)
        assert (await harness.answers.answer(make_request())).cache_outcome is CacheOutcome.MISS

    run_with_harness(test)


def test_an_answer_of_an_endpoint_that_is_not_warmed_expires_and_is_dropped() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.catalog.replace(ENDPOINT_WITHOUT_WARMING)
        await harness.answers.answer(make_request(ENDPOINT_WITHOUT_WARMING))
        assert await harness.tick(899) == 0
        assert harness.cache.size_bytes() > 0
        assert await harness.tick(1) == 0
        assert harness.cache.size_bytes() == 0
        assert harness.engine.question_count == 1

    run_with_harness(test)


def test_an_answer_without_requests_in_one_lifetime_is_dropped() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        refreshes = [await harness.tick(1) for _ in range(2000)]
        assert sum(refreshes) == 3
        assert harness.cache.size_bytes() == 0

    run_with_harness(test)


def test_a_requested_answer_stays_refreshed() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        for _ in range(100):
            await harness.tick(30)
            answer = await harness.answers.answer(make_request())
            assert answer.cache_outcome is CacheOutcome.HIT
            assert answer.age_seconds <= 300
        assert 10 <= harness.engine.question_count <= 13

    run_with_harness(test)


def test_closing_does_not_wait_for_a_refresh() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.engine.hold()
        harness.advance(299)
        harness.answers.start_due_refreshes()
        await until(lambda: harness.engine.question_count == 2)
        await harness.answers.close()
        assert harness.engine.stopped == 1

    run_with_harness(test)


def with_new_revision(endpoint: Endpoint) -> Endpoint:
    return msgspec.structs.replace(endpoint, revision="revision-2")


def test_a_new_revision_is_a_miss() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        assert (
            await harness.answers.answer(make_request(with_new_revision(WARMED_ENDPOINT)))
        ).cache_outcome is CacheOutcome.MISS

    run_with_harness(test)


def test_a_new_revision_renews_the_answers_of_its_endpoint_only() -> None:
    async def test(harness: ServeHarness) -> None:
        other = msgspec.structs.replace(WARMED_ENDPOINT, name="other", revision="other-1", id=UNCACHED_ENDPOINT.id)
        harness.catalog.replace(WARMED_ENDPOINT, other)
        await harness.answers.answer(make_request())
        await harness.answers.answer(make_request(other))
        assert await harness.tick() == 0
        harness.catalog.replace(with_new_revision(WARMED_ENDPOINT), other)
        assert await harness.tick(1) == 1
        assert harness.engine.question_count == 3
        assert (
            await harness.answers.answer(make_request(with_new_revision(WARMED_ENDPOINT)))
        ).cache_outcome is CacheOutcome.HIT
        assert (await harness.answers.answer(make_request(other))).cache_outcome is CacheOutcome.HIT
        assert cached_answer(harness, make_request()) is None

    run_with_harness(test)


def test_the_answers_of_a_removed_endpoint_are_dropped() -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(make_request())
        harness.catalog.replace()
        assert await harness.tick(1) == 0
        assert harness.cache.size_bytes() == 0

    run_with_harness(test)
