"""Sending of notifications with a manual clock: grouping, rate limits, retries, and giving up."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cordwood.alerts.notification import DeliveryFailed, Notification, NotifiedState
from cordwood.alerts.sender import LAST_PAUSE_SECONDS, NotificationSender, SendLimits
from cordwood.alerts.store import AlertStore, AlertSummary
from cordwood.errors import OutOfDisk
from cordwood.model.definitions import Severity
from cordwood.observe.observation import AlertSent
from tests.unit.alerts.harness import SECOND_US, START_US, AlertGroups, make_alert

ALERT_FACTS = AlertSummary("1", "a", "errors", Severity.ERROR, 60.0)
SEND_LIMITS = SendLimits(1_000.0, 3_600.0)
OTHER_ALERT_FACTS = AlertSummary("2", "b", "errors", Severity.ERROR, 60.0)


class SenderHarness:
    """A sender with one target, `x`. If `failure` is set, the target's receiver raises it."""

    def __init__(self, folder: Path, limits: SendLimits = SEND_LIMITS, limit: int = 100) -> None:
        self.now_us = START_US
        self.store = AlertStore(folder / "alerts.db")
        self.received: list[Notification] = []
        self.failure: Exception | None = None
        self.notes: list[object] = []
        self.sender = NotificationSender(
            self.store, {"x": (limit, self._receive)}, limits, lambda: self.now_us, self.notes.append
        )

    async def _receive(self, notification: Notification) -> None:
        if self.failure is not None:
            raise self.failure
        self.received.append(notification)

    def queue(self, rows: int, facts: AlertSummary = ALERT_FACTS, target: str = "x") -> AlertGroups:
        groups = AlertGroups(make_alert(name=facts.name, group_by=("n",), send_to=(target,)))
        self.store.store_update(facts, groups.evaluate_at(0, [{"n": number} for number in range(rows)]), self.now_us)
        return groups

    async def advance(self, seconds: float = 0.0) -> int:
        """Advance the clock and send what is due. Return the number of notifications that the receiver accepted."""
        self.now_us += round(seconds * SECOND_US)
        before = len(self.received)
        await asyncio.gather(*await self.sender.start_due_sends())
        return len(self.received) - before

    @property
    def outcomes(self) -> list[str]:
        return [note.outcome for note in self.notes if isinstance(note, AlertSent)]


def run_async(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_changes_of_one_alert_are_sent_in_one_notification(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(3)
        harness.queue(2, OTHER_ALERT_FACTS)
        assert [await harness.advance(), await harness.advance(), await harness.advance()] == [1, 1, 0]
        assert [(sent.alert_name, len(sent.changes)) for sent in harness.received] == [("a", 3), ("b", 2)]
        assert len({sent.id for sent in harness.received}) == 2

    run_async(test)


def test_changes_beyond_the_limit_follow_in_the_next_notification(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path, limit=4)
        harness.queue(10)
        while await harness.advance():
            pass
        assert [(len(sent.changes), sent.omitted_change_count) for sent in harness.received] == [(4, 6), (4, 2), (2, 0)]
        labels = [change.labels["n"] for sent in harness.received for change in sent.changes]
        assert labels == [str(number) for number in range(10)]

    run_async(test)


def test_the_send_rate_is_limited_after_a_burst(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path, SendLimits(1 / 60, 3_600.0, max_burst_notifications=2))
        for name in "abcd":
            harness.queue(1, AlertSummary(name, name, "errors", Severity.ERROR, 60.0))
        assert [await harness.advance() for _ in range(5)] == [1, 1, 0, 0, 0]
        assert [await harness.advance(30) for _ in range(4)] == [0, 1, 0, 1]

    run_async(test)


def test_a_failed_notification_is_retried_with_exponential_backoff(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)
        harness.failure = DeliveryFailed("It does not answer.")
        await harness.advance()
        attempts, pauses = harness.sender.delivery_state("x"), []
        for _ in range(12):
            pauses.append((attempts.next_attempt_us - harness.now_us) / SECOND_US)
            assert await harness.advance(pauses[-1] - 0.001) == 0
            assert (harness.sender.delivery_state("x").consecutive_failures, attempts.last_error) == (
                len(pauses),
                "It does not answer.",
            )
            await harness.advance(0.001)
        assert all(0.8 * 2**number <= pause <= 2**number for number, pause in enumerate(pauses[:8]))
        assert max(pauses) <= LAST_PAUSE_SECONDS
        assert harness.outcomes == 13 * ["failed"], "each is counted, so that its rate tells of a target that is away"
        kinds = [entry.kind for entry in harness.store.history(None, 100, 2**53)]
        assert kinds.count("failed") == 1, "one failure of a series is in the history"
        harness.failure = None
        assert await harness.advance(LAST_PAUSE_SECONDS) == 1
        assert (harness.sender.delivery_state("x").consecutive_failures, harness.store.queued_changes()) == (0, [])

    run_async(test)


def test_a_clock_that_is_set_back_does_not_delay_a_retry(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)
        harness.failure = DeliveryFailed("down")
        await harness.advance()
        harness.failure = None
        assert await harness.advance(-86_400) == 1

    run_async(test)


def test_the_retry_after_of_a_target_is_respected(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)
        harness.failure = DeliveryFailed("429", 120.0)
        await harness.advance()
        harness.failure = None
        assert await harness.advance(119) == 0
        assert await harness.advance(1) == 1

    run_async(test)


def test_a_target_that_fails_does_not_delay_another(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        received: list[Notification] = []

        async def take(notification: Notification) -> None:
            received.append(notification)

        sender = NotificationSender(
            harness.store,
            {"x": (10, harness._receive), "y": (10, take)},
            SendLimits(),
            lambda: harness.now_us,
            harness.notes.append,
        )
        harness.failure = DeliveryFailed("down")
        harness.queue(1)
        harness.queue(1, OTHER_ALERT_FACTS, "y")
        await asyncio.gather(*await sender.start_due_sends())
        assert [sent.alert_name for sent in received] == ["b"]

    run_async(test)


def test_a_notification_is_given_up_after_the_retry_time_and_logged(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)
        harness.failure = DeliveryFailed("down")
        await harness.advance()
        await harness.advance(3_000)
        assert len(harness.store.queued_changes()) == 1
        await harness.advance(600)
        assert harness.store.queued_changes() == []
        (newest,) = harness.store.history("a", 1)
        assert (newest.kind, newest.reason) == ("given_up", "down")
        assert harness.outcomes == ["failed", "failed", "given_up"]

    run_async(test)


def test_changes_for_a_removed_target_are_given_up_and_recorded(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1, target="gone")
        await harness.advance()
        assert harness.store.queued_changes() == []
        assert harness.store.history("a", 1)[0].reason == "There is no target of this name any more."

    run_async(test)


def test_an_internal_error_of_a_delivery_is_recorded_and_retried(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)
        harness.failure = ZeroDivisionError()
        await harness.advance()
        assert "internal error" in harness.sender.delivery_state("x").last_error
        harness.failure = None
        assert await harness.advance(1) == 1

    run_async(test)


def test_a_notification_that_cannot_be_dequeued_is_resent_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        harness.queue(1)

        def raise_disk_full(*_: object) -> None:
            raise OutOfDisk("The disk is full.")

        with monkeypatch.context() as without_room:
            without_room.setattr(harness.store, "remove_queued_changes", raise_disk_full)
            assert await harness.advance() == 1
        assert await harness.advance(1) == 1
        assert harness.received[0].id == harness.received[1].id

    run_async(test)


def test_a_change_during_a_delivery_is_sent_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        harness = SenderHarness(tmp_path)
        groups = harness.queue(1)
        tasks = await harness.sender.start_due_sends()
        harness.store.store_update(ALERT_FACTS, groups.evaluate_at(60, []), harness.now_us)
        assert await harness.sender.start_due_sends() == [], "one notification at a time for each target"
        await asyncio.gather(*tasks)
        await harness.advance()
        assert [sent.changes[0].state for sent in harness.received] == [NotifiedState.FIRING, NotifiedState.RESOLVED]

    run_async(test)
