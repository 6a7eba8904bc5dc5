"""Send queued changes: grouped by alert, limited in rate, and retried with growing pauses until they are accepted."""

import asyncio
import random
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final
from uuid import uuid4

import msgspec

from cordwood.alerts.evaluation import MICROSECONDS_PER_SECOND
from cordwood.alerts.notification import DeliveryFailed, Notification
from cordwood.alerts.store import AlertStore, HistoryEntry, QueuedChange
from cordwood.errors import Fault
from cordwood.observe.observation import AlertSent, BugFound, RecordObservation

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 1.0, 300.0
# The maximum pause before a retry that a target may request; longer requests are cut to it.
_MAX_RETRY_AFTER_SECONDS: Final = 3_600.0
_MAX_TARGET_PAUSE_US: Final = round(_MAX_RETRY_AFTER_SECONDS * MICROSECONDS_PER_SECOND)
_QUEUE_POLL_SECONDS: Final = 1.0
# A notification of a firing group expires after this number of evaluation intervals, or after this number of seconds if
# that is longer. Until then, a receiver can assume that the group still fires.
_EXPIRES_INTERVALS, _MIN_EXPIRES_SECONDS = 4, 300.0


# How to send to a target: the maximum number of changes in one notification, and the function that delivers it.
DeliveryRoute = tuple[int, Callable[[Notification], Awaitable[None]]]


class SendLimits(msgspec.Struct, frozen=True):
    """The limit on the rate of notifications to each target, and for how long a failed notification is retried."""

    notifications_per_second: float = 1 / 6
    retry_for_seconds: float = 86_400.0
    # The size of the token bucket: how many notifications may be sent at once after a quiet period.
    max_burst_notifications: int = 5


class TargetDeliveryState(msgspec.Struct):
    """The state of sending to a target.

    It has the number of failures since the last success, the time of the next attempt, and the tokens of the target's
    rate limit.
    """

    consecutive_failures: int = 0
    next_attempt_us: int = 0
    last_error: str = ""
    rate_limit_tokens: float = 0.0
    tokens_refilled_us: int | None = None

    def is_paused(self, now_us: int) -> bool:
        """Return whether the next attempt is not due yet.

        A pause longer than the maximum is ignored: it means that the clock was set back.
        """
        return now_us < self.next_attempt_us <= now_us + _MAX_TARGET_PAUSE_US


class NotificationSender:
    """Sends notifications of alerts to targets. Each target receives only one notification at a time.

    `receivers` has a delivery function for each target. The function raises DeliveryFailed if the notification is
    refused.
    """

    def __init__(
        self,
        store: AlertStore,
        receivers: Mapping[str, DeliveryRoute],
        limits: SendLimits,
        clock_us: Callable[[], int],
        note: RecordObservation,
        external_url: str = "",
    ) -> None:
        self._alert_store = store
        self._routes_by_target = receivers
        self._send_limits = limits
        self._clock_us = clock_us
        self._record_observation = note
        self._external_url = external_url.rstrip("/")
        self._delivery_states_by_target: defaultdict[str, TargetDeliveryState] = defaultdict(TargetDeliveryState)
        self._send_tasks_by_target: dict[str, asyncio.Task[None]] = {}
        self._wake_event = asyncio.Event()

    def wake(self) -> None:
        """Make the sender look for queued changes now. Must be called on the event loop."""
        self._wake_event.set()

    def delivery_state(self, target: str) -> TargetDeliveryState:
        return self._delivery_states_by_target[target]

    async def run(self) -> None:
        """Send queued changes until cancelled.

        When cancelled, wait for the notifications that are being sent, each of which has a time limit.
        """
        self._wake_event.set()
        try:
            while True:
                await self._wait_for_changes()
                try:
                    await self.start_due_sends()
                except Exception:  # noqa: BLE001 - a defect must not end the sending to all targets
                    self._record_observation(BugFound(incident=uuid4().hex, trace=traceback.format_exc()))
        finally:
            await asyncio.gather(*self._send_tasks_by_target.values(), return_exceptions=True)

    async def _wait_for_changes(self) -> None:
        """Wait for new changes, but at most `_QUEUE_POLL_SECONDS`: a target may then be due for another attempt."""
        try:
            async with asyncio.timeout(_QUEUE_POLL_SECONDS):
                await self._wake_event.wait()
        except TimeoutError:
            return
        self._wake_event.clear()

    async def start_due_sends(self) -> list["asyncio.Task[None]"]:
        """Start sending to each target that has queued changes; return the tasks.

        Targets that are paused, busy, or at their rate limit are skipped.
        """
        now_us = self._clock_us()
        paused = [target for target, attempts in self._delivery_states_by_target.items() if attempts.is_paused(now_us)]
        by_target: defaultdict[str, list[QueuedChange]] = defaultdict(list)
        for outgoing in await asyncio.to_thread(
            self._alert_store.queued_changes, excluded_targets=[*self._send_tasks_by_target, *paused]
        ):
            by_target[outgoing.target].append(outgoing)
        started = []
        for target, queued in by_target.items():
            if not self._take_rate_limit_token(target, now_us):
                continue
            group = [outgoing for outgoing in queued if outgoing.alert.id == queued[0].alert.id]
            started.append(self._start_sending(target, group, now_us))
        return started

    def _start_sending(self, target: str, group: Sequence[QueuedChange], now_us: int) -> "asyncio.Task[None]":
        async def send() -> None:
            try:
                await self._send_changes(target, group, now_us)
            finally:
                del self._send_tasks_by_target[target]

        task = asyncio.ensure_future(send())
        self._send_tasks_by_target[target] = task
        return task

    def _take_rate_limit_token(self, target: str, now_us: int) -> bool:
        attempts, limits = self._delivery_states_by_target[target], self._send_limits
        if attempts.tokens_refilled_us is None:
            attempts.rate_limit_tokens = float(limits.max_burst_notifications)
        else:
            passed = max(0, now_us - attempts.tokens_refilled_us) / MICROSECONDS_PER_SECOND
            attempts.rate_limit_tokens = min(
                float(limits.max_burst_notifications),
                attempts.rate_limit_tokens + passed * limits.notifications_per_second,
            )
        attempts.tokens_refilled_us = now_us
        if attempts.rate_limit_tokens < 1:
            return False
        attempts.rate_limit_tokens -= 1
        return True

    async def _send_changes(self, target: str, group: Sequence[QueuedChange], now_us: int) -> None:
        attempts = self._delivery_states_by_target[target]
        max_changes, deliver = self._routes_by_target.get(target, (len(group), None))
        # Changes beyond the maximum follow in the next notification.
        sent = group[:max_changes]
        notification = self._make_notification(sent, len(group) - len(sent), now_us)
        try:
            if deliver is None:
                await self._record_and_dequeue_changes(sent, "given_up", "There is no target of this name any more.")
                return
            await deliver(notification)
            attempts.consecutive_failures, attempts.next_attempt_us, attempts.last_error = 0, 0, ""
            await self._record_and_dequeue_changes(sent, "sent")
            # Let the sender look at once whether further changes are queued for this target.
            self.wake()
        except DeliveryFailed as failure:
            await self._handle_failure(target, sent, failure, now_us)
        except Fault as fault:
            # The notification was sent, but could not be removed from the queue. It is sent again with the same id.
            self._schedule_retry(attempts, fault.message, None, now_us)
        except Exception:  # noqa: BLE001 - a defect in one form of message must not end the others
            incident = uuid4().hex
            self._record_observation(BugFound(incident=incident, trace=traceback.format_exc()))
            self._schedule_retry(attempts, f"An internal error: the log has the cause under {incident}.", None, now_us)

    async def _handle_failure(
        self, target: str, sent: Sequence[QueuedChange], failure: DeliveryFailed, now_us: int
    ) -> None:
        attempts = self._delivery_states_by_target[target]
        self._schedule_retry(attempts, failure.reason, failure.retry_after_seconds, now_us)
        expired_us = now_us - round(self._send_limits.retry_for_seconds * MICROSECONDS_PER_SECOND)
        expired = [outgoing for outgoing in sent if outgoing.queued_us <= expired_us]
        if expired:
            await self._record_and_dequeue_changes(expired, "given_up", failure.reason)
        elif attempts.consecutive_failures == 1:
            await self._record_in_history(sent, "failed", failure.reason)
        else:
            # Later failures in a row are reported only to the log and metrics. In the history they would displace other
            # entries.
            self._report_history_entry(self._make_history_entry(sent, "failed", failure.reason))

    def _schedule_retry(
        self, attempts: TargetDeliveryState, reason: str, retry_after: float | None, now_us: int
    ) -> None:
        """Set the time of the next attempt for a target.

        The pause doubles with each failure, up to a maximum. If the target requests a longer pause (`retry_after`), the
        pause has that length, but at most `_MAX_RETRY_AFTER_SECONDS`.
        """
        pause = min(LAST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(attempts.consecutive_failures, 20))
        pause = max(pause * random.uniform(0.8, 1.0), min(retry_after or 0.0, _MAX_RETRY_AFTER_SECONDS))  # noqa: S311 - no secret
        attempts.consecutive_failures += 1
        attempts.last_error = reason
        attempts.next_attempt_us = now_us + round(pause * MICROSECONDS_PER_SECOND)

    async def _record_and_dequeue_changes(self, sent: Sequence[QueuedChange], kind: str, reason: str = "") -> None:
        entry = self._make_history_entry(sent, kind, reason)
        await asyncio.to_thread(self._alert_store.remove_queued_changes, sent, entry)
        self._report_history_entry(entry)

    async def _record_in_history(self, sent: Sequence[QueuedChange], kind: str, reason: str) -> None:
        entry = self._make_history_entry(sent, kind, reason)
        self._report_history_entry(entry)
        await asyncio.to_thread(self._alert_store.record_in_history, entry)

    def _make_history_entry(self, sent: Sequence[QueuedChange], kind: str, reason: str) -> HistoryEntry:
        first = sent[0]
        return HistoryEntry(
            self._clock_us(), first.alert.name, kind, target=first.target, count=len(sent), reason=reason
        )

    def _report_history_entry(self, entry: HistoryEntry) -> None:
        self._record_observation(
            AlertSent(
                alert=entry.alert,
                target=entry.target,
                outcome=entry.kind,
                changes=entry.count,
                reason=entry.reason,
                level="info" if entry.kind == "sent" else "warning",
            )
        )

    def _make_notification(self, sent: Sequence[QueuedChange], omitted: int, now_us: int) -> Notification:
        alert = sent[-1].alert
        # The id depends only on the target and the changes, so that a receiver can recognise a notification that is
        # sent twice.
        numbers = "|".join(f"{item.number}:{item.change.state}:{item.change.fingerprint}" for item in sent)
        expires_seconds = max(_MIN_EXPIRES_SECONDS, _EXPIRES_INTERVALS * alert.every_seconds)
        return Notification(
            id=blake2b(f"{sent[0].target}|{numbers}".encode(), digest_size=16).hexdigest(),
            alert_name=alert.name,
            endpoint_name=alert.endpoint,
            severity=alert.severity,
            changes=tuple(item.change for item in sent),
            created_us=now_us,
            expires_us=now_us + round(expires_seconds * MICROSECONDS_PER_SECOND),
            omitted_change_count=omitted,
            alert_page_url=f"{self._external_url}/#/alerts" if self._external_url else "",
        )
