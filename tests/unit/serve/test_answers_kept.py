"""The life of a kept answer, with the clock given: hit, refresh, stale, expiry, drop, revision change."""

import msgspec

from cordwood.errors import EngineUnreachable, QueryValue
from cordwood.model.endpoint import Endpoint
from cordwood.observe.observation import Refreshed
from cordwood.serve.answer import Answer, Outcome
from cordwood.serve.query_request import QueryRequest
from tests.unit.serve.kitchen import UNCACHED, WARMED, Kitchen, ask, run, until, whole

FIRST, SECOND = b'{"result":[{"n":1}]}', b'{"result":[{"n":2}]}'
COLD = msgspec.structs.replace(WARMED, warm_seconds=None)


def cached(kitchen: Kitchen, asked: QueryRequest) -> Answer | None:
    digest = kitchen.answers.digest_of(asked)
    assert digest is not None
    return kitchen.answers.cached(digest)


def test_the_second_ask_is_a_hit_and_tells_its_age() -> None:
    async def test(kitchen: Kitchen) -> None:
        first = await kitchen.answers.answer(ask())
        kitchen.wait(10)
        second = await kitchen.answers.answer(ask())
        assert (first.outcome, second.outcome) == (Outcome.MISS, Outcome.HIT)
        assert whole(first).body == whole(second).body == FIRST
        assert (first.age_seconds, second.age_seconds) == (0, 10)
        assert kitchen.engine.asked == 1

    run(test)


def test_a_kept_answer_is_found_without_waiting() -> None:
    async def test(kitchen: Kitchen) -> None:
        assert cached(kitchen, ask()) is None
        await kitchen.answers.answer(ask())
        assert cached(kitchen, ask()) is not None

    run(test)


def test_an_endpoint_without_a_cache_runs_every_time() -> None:
    async def test(kitchen: Kitchen) -> None:
        answers = [await kitchen.answers.answer(ask(UNCACHED)) for _ in range(2)]
        assert [answer.outcome for answer in answers] == [Outcome.UNCACHED] * 2
        assert kitchen.engine.asked == 2
        assert kitchen.cache.size() == 0

    run(test)


def test_no_cache_asks_for_a_fresh_run_that_others_then_get() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        fresh = await kitchen.answers.answer(msgspec.structs.replace(ask(), fresh=True))
        assert fresh.outcome is Outcome.REQUESTED
        assert await kitchen.body(ask()) == SECOND

    run(test)


def test_an_error_is_not_kept() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.fails_with = QueryValue("division by zero")
        for _ in range(2):
            try:
                await kitchen.answers.answer(ask())
            except QueryValue:
                continue
        assert kitchen.engine.asked == 2
        assert kitchen.cache.size() == 0

    run(test)


def test_an_answer_is_refreshed_before_it_is_300_seconds_old_and_nobody_waits() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        assert await kitchen.tick(269) == 0
        assert await kitchen.tick(30) == 1
        hit = await kitchen.answers.answer(ask())
        assert (hit.outcome, whole(hit).body, hit.age_seconds) == (Outcome.HIT, SECOND, 0)
        assert await kitchen.tick(269) == 0
        assert await kitchen.tick(30) == 1

    run(test)


def test_entries_made_together_are_not_refreshed_together() -> None:
    async def test(kitchen: Kitchen) -> None:
        for number in range(40):
            await kitchen.answers.answer(ask(project=str(number)))
        started = [await kitchen.tick(1) for _ in range(300)]
        assert sum(started) == 40
        assert max(started) < 10

    run(test)


def test_the_old_answer_is_served_while_the_new_one_is_made() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.engine.hold()
        kitchen.wait(299)
        [refresh] = kitchen.answers.tick()
        assert (await kitchen.answers.answer(ask())).outcome is Outcome.HIT
        assert kitchen.answers.tick() == []
        kitchen.engine.release()
        await refresh
        assert await kitchen.body(ask()) == SECOND

    run(test)


def test_a_failed_refresh_keeps_the_old_answer_and_says_stale() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.engine.fails_with = EngineUnreachable("gone")
        await kitchen.tick(299)
        kitchen.wait(2)
        answer = await kitchen.answers.answer(ask())
        assert (answer.outcome, whole(answer).body, answer.age_seconds) == (Outcome.STALE, FIRST, 301)
        refreshes = [note for note in kitchen.notes.all if isinstance(note, Refreshed)]
        assert [note.outcome for note in refreshes] == ["engine.unreachable"]

    run(test)


def test_a_failed_refresh_is_tried_again_with_growing_pauses_until_it_succeeds() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.engine.fails_with = EngineUnreachable("gone")
        await kitchen.tick(299)
        tried_at = []
        for second in range(1, 400):
            if await kitchen.tick(1):
                tried_at.append(second)
            await kitchen.answers.answer(ask())
        assert tried_at == [10, 30, 70, 130, 190, 250, 310, 370]
        kitchen.engine.fails_with = None
        await kitchen.tick(31)
        answer = await kitchen.answers.answer(ask())
        assert (answer.outcome, answer.age_seconds) == (Outcome.HIT, 0)

    run(test)


def test_a_stale_answer_expires_at_900_seconds() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.wait(899)
        assert (await kitchen.answers.answer(ask())).outcome is Outcome.HIT
        kitchen.wait(1)
        assert (await kitchen.answers.answer(ask())).outcome is Outcome.MISS

    run(test)


def test_an_answer_of_an_endpoint_that_is_not_warmed_expires_and_is_dropped() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.catalog.replace(COLD)
        await kitchen.answers.answer(ask(COLD))
        assert await kitchen.tick(899) == 0
        assert kitchen.cache.size() > 0
        assert await kitchen.tick(1) == 0
        assert kitchen.cache.size() == 0
        assert kitchen.engine.asked == 1

    run(test)


def test_what_nobody_asks_for_in_one_lifetime_is_dropped_and_no_longer_refreshed() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        refreshes = [await kitchen.tick(1) for _ in range(2000)]
        assert sum(refreshes) == 3
        assert kitchen.cache.size() == 0

    run(test)


def test_what_is_asked_for_goes_on_being_refreshed() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        for _ in range(100):
            await kitchen.tick(30)
            answer = await kitchen.answers.answer(ask())
            assert answer.outcome is Outcome.HIT
            assert answer.age_seconds <= 300
        assert 10 <= kitchen.engine.asked <= 13

    run(test)


def test_closing_does_not_wait_for_a_refresh() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.engine.hold()
        kitchen.wait(299)
        kitchen.answers.tick()
        await until(lambda: kitchen.engine.asked == 2)
        await kitchen.answers.close()
        assert kitchen.engine.stopped == 1

    run(test)


def changed(endpoint: Endpoint) -> Endpoint:
    return msgspec.structs.replace(endpoint, revision="revision-2")


def test_a_changed_endpoint_is_another_endpoint() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        assert (await kitchen.answers.answer(ask(changed(WARMED)))).outcome is Outcome.MISS

    run(test)


def test_a_change_drops_and_rebuilds_what_was_kept_for_that_endpoint_only() -> None:
    async def test(kitchen: Kitchen) -> None:
        other = msgspec.structs.replace(WARMED, name="other", revision="other-1", id=UNCACHED.id)
        kitchen.catalog.replace(WARMED, other)
        await kitchen.answers.answer(ask())
        await kitchen.answers.answer(ask(other))
        assert await kitchen.tick() == 0
        kitchen.catalog.replace(changed(WARMED), other)
        assert await kitchen.tick(1) == 1
        assert kitchen.engine.asked == 3
        assert (await kitchen.answers.answer(ask(changed(WARMED)))).outcome is Outcome.HIT
        assert (await kitchen.answers.answer(ask(other))).outcome is Outcome.HIT
        assert cached(kitchen, ask()) is None

    run(test)


def test_the_answers_of_an_endpoint_that_is_gone_are_dropped() -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(ask())
        kitchen.catalog.replace()
        assert await kitchen.tick(1) == 0
        assert kitchen.cache.size() == 0

    run(test)
