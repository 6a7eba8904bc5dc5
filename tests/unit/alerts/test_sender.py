"""Sending with a frozen clock: groups, rates, pauses, and what is given up."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cordwood.alerts.notification import DeliveryFailed, Notification, State
from cordwood.alerts.sender import LAST_PAUSE_SECONDS, Sender, SendLimits
from cordwood.alerts.store import AlertFacts, AlertStore
from cordwood.errors import OutOfDisk
from cordwood.model.alert import Severity
from cordwood.observe.observation import AlertSent
from tests.unit.alerts.made import SECOND, START_US, Groups, alert

FACTS = AlertFacts("1", "a", "errors", Severity.ERROR, 60.0)
LIMITS = SendLimits(1_000.0, 3_600.0)
OTHER = AlertFacts("2", "b", "errors", Severity.ERROR, 60.0)


class Desk:
    """A sender with one target `x`, whose receiver fails as the test says."""

    def __init__(self, folder: Path, limits: SendLimits = LIMITS, most: int = 100) -> None:
        self.now_us = START_US
        self.store = AlertStore(folder / "alerts.db")
        self.received: list[Notification] = []
        self.failure: Exception | None = None
        self.notes: list[object] = []
        self.sender = Sender(self.store, {"x": (most, self._take)}, limits, lambda: self.now_us, self.notes.append)

    async def _take(self, notification: Notification) -> None:
        if self.failure is not None:
            raise self.failure
        self.received.append(notification)

    def queue(self, rows: int, facts: AlertFacts = FACTS, target: str = "x") -> Groups:
        groups = Groups(alert(name=facts.name, group_by=("n",), send_to=(target,)))
        self.store.apply(facts, groups.at(0, [{"n": number} for number in range(rows)]), self.now_us)
        return groups

    async def turn(self, seconds: float = 0.0) -> int:
        """Let time pass, and send; return how many notifications arrived."""
        self.now_us += round(seconds * SECOND)
        before = len(self.received)
        await asyncio.gather(*await self.sender.tick())
        return len(self.received) - before

    @property
    def outcomes(self) -> list[str]:
        return [note.outcome for note in self.notes if isinstance(note, AlertSent)]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_the_changes_of_one_alert_are_sent_together_and_those_of_another_apart(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(3)
        desk.queue(2, OTHER)
        assert [await desk.turn(), await desk.turn(), await desk.turn()] == [1, 1, 0]
        assert [(sent.alert, len(sent.changes)) for sent in desk.received] == [("a", 3), ("b", 2)]
        assert len({sent.id for sent in desk.received}) == 2

    run(test)


def test_more_changes_than_a_form_has_place_for_follow_in_the_next_notification(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path, most=4)
        desk.queue(10)
        while await desk.turn():
            pass
        assert [(len(sent.changes), sent.omitted) for sent in desk.received] == [(4, 6), (4, 2), (2, 0)]
        labels = [change.labels["n"] for sent in desk.received for change in sent.changes]
        assert labels == [str(number) for number in range(10)]

    run(test)


def test_a_rate_is_kept_and_what_waits_is_merged(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path, SendLimits(1 / 60, 3_600.0, burst=2))
        for name in "abcd":
            desk.queue(1, AlertFacts(name, name, "errors", Severity.ERROR, 60.0))
        assert [await desk.turn() for _ in range(5)] == [1, 1, 0, 0, 0]
        assert [await desk.turn(30) for _ in range(4)] == [0, 1, 0, 1]

    run(test)


def test_a_failed_notification_is_repeated_with_the_same_id_after_growing_pauses(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)
        desk.failure = DeliveryFailed("It does not answer.")
        await desk.turn()
        attempts, pauses = desk.sender.attempts("x"), []
        for _ in range(12):
            pauses.append((attempts.next_us - desk.now_us) / SECOND)
            assert await desk.turn(pauses[-1] - 0.001) == 0
            assert (desk.sender.attempts("x").failures, attempts.error) == (len(pauses), "It does not answer.")
            await desk.turn(0.001)
        assert all(0.8 * 2**number <= pause <= 2**number for number, pause in enumerate(pauses[:8]))
        assert max(pauses) <= LAST_PAUSE_SECONDS
        assert desk.outcomes == 13 * ["failed"], "each is counted, so that its rate tells of a target that is away"
        kinds = [entry.kind for entry in desk.store.history(None, 100, 2**53)]
        assert kinds.count("failed") == 1, "one failure of a series is in the history"
        desk.failure = None
        assert await desk.turn(LAST_PAUSE_SECONDS) == 1
        assert (desk.sender.attempts("x").failures, desk.store.queued()) == (0, [])

    run(test)


def test_a_clock_that_is_set_back_does_not_lengthen_a_pause(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)
        desk.failure = DeliveryFailed("down")
        await desk.turn()
        desk.failure = None
        assert await desk.turn(-86_400) == 1

    run(test)


def test_the_pause_that_a_target_asks_for_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)
        desk.failure = DeliveryFailed("429", 120.0)
        await desk.turn()
        desk.failure = None
        assert await desk.turn(119) == 0
        assert await desk.turn(1) == 1

    run(test)


def test_a_target_that_fails_does_not_delay_another(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        received: list[Notification] = []

        async def take(notification: Notification) -> None:
            received.append(notification)

        sender = Sender(
            desk.store,
            {"x": (10, desk._take), "y": (10, take)},
            SendLimits(),
            lambda: desk.now_us,
            desk.notes.append,
        )
        desk.failure = DeliveryFailed("down")
        desk.queue(1)
        desk.queue(1, OTHER, "y")
        await asyncio.gather(*await sender.tick())
        assert [sent.alert for sent in received] == ["b"]

    run(test)


def test_what_was_not_taken_for_the_whole_retry_time_is_given_up_and_told(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)
        desk.failure = DeliveryFailed("down")
        await desk.turn()
        await desk.turn(3_000)
        assert len(desk.store.queued()) == 1
        await desk.turn(600)
        assert desk.store.queued() == []
        (newest,) = desk.store.history("a", 1)
        assert (newest.kind, newest.reason) == ("given_up", "down")
        assert desk.outcomes == ["failed", "failed", "given_up"]

    run(test)


def test_a_target_that_is_no_longer_in_the_settings_is_given_up_and_told(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1, target="gone")
        await desk.turn()
        assert desk.store.queued() == []
        assert desk.store.history("a", 1)[0].reason == "There is no target of this name any more."

    run(test)


def test_a_defect_in_a_form_is_logged_and_delays_only_its_target(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)
        desk.failure = ZeroDivisionError()
        await desk.turn()
        assert "internal error" in desk.sender.attempts("x").error
        desk.failure = None
        assert await desk.turn(1) == 1

    run(test)


def test_what_was_sent_and_cannot_be_removed_is_sent_again_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        desk.queue(1)

        def full(*_: object) -> None:
            raise OutOfDisk("The disk is full.")

        with monkeypatch.context() as without_room:
            without_room.setattr(desk.store, "finish", full)
            assert await desk.turn() == 1
        assert await desk.turn(1) == 1
        assert desk.received[0].id == desk.received[1].id

    run(test)


def test_a_change_while_the_one_before_is_on_its_way_is_sent_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(tmp_path)
        groups = desk.queue(1)
        tasks = await desk.sender.tick()
        desk.store.apply(FACTS, groups.at(60, []), desk.now_us)
        assert await desk.sender.tick() == [], "one notification at a time for each target"
        await asyncio.gather(*tasks)
        await desk.turn()
        assert [sent.changes[0].state for sent in desk.received] == [State.FIRING, State.RESOLVED]

    run(test)
