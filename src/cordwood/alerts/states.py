"""The states of the groups of an alert, their changes with each evaluation, and silences."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from cordwood.alerts.conditions import Labels, Verdict, remembers_groups
from cordwood.alerts.notification import Change, State
from cordwood.model.endpoint import Alert

SECOND_US: Final = 1_000_000
# A group that has had no rows for this long is forgotten; if it fires, it is resolved.
GROUP_RETENTION_SECONDS: Final = 7 * 86_400.0
# The time at which a quiet group was last seen is stored in steps, so that most evaluations write nothing.
_SEEN_STEP_US: Final = 3_600 * SECOND_US
MAX_SILENCES: Final = 500


class Phase(StrEnum):
    """The phase of a group. Quiet groups are kept only for alerts that fire when a group has no rows."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


class Instance(msgspec.Struct, frozen=True):
    """The state of an alert for one group of its rows.

    `since_us` is when its present phase began, `seen_us` when the group last had rows, and `sent_us` when each receiver
    was last notified that the group fires.
    """

    fingerprint: str
    labels: Labels
    phase: Phase
    since_us: int
    seen_us: int
    value: float | None = None
    text: str = ""
    sent_us: Mapping[str, int] = msgspec.field(default_factory=dict)


class StateUpdate(msgspec.Struct):
    """The result of an evaluation: all groups, the changed ones, and the changes to send to targets."""

    instances: dict[str, Instance]
    changed: list[Instance] = []
    removed: list[str] = []
    outgoing: list[tuple[str, Change]] = []
    # Groups that became pending or firing, or ended, for the history.
    events: list[tuple[str, Instance]] = []


class Evaluation(msgspec.Struct, frozen=True):
    """The verdicts of one evaluation. If `is_cut`, the answer had more rows, so groups without a verdict stay."""

    verdicts: Sequence[Verdict]
    now_us: int
    is_cut: bool = False

    def verdicts_by_fingerprint(self) -> Mapping[str, Verdict]:
        """Return the verdicts by fingerprint, without groups that may have rows beyond the end of the answer."""
        return {
            verdict.fingerprint: verdict
            for verdict in self.verdicts
            if verdict.is_present or not (self.is_cut and verdict.labels)
        }


# After how many seconds a firing state is sent to a target again, or None for never.
RepeatAfter = Callable[[str], float | None]


def advance(
    alert: Alert,
    instances: Mapping[str, Instance],
    evaluation: Evaluation,
    repeat_after: RepeatAfter,
    is_silenced: Callable[[Labels], bool],
) -> StateUpdate:
    """Return the states after an evaluation. A silenced change is sent when the silence has ended."""
    update = StateUpdate(dict(instances))
    verdicts_by_fingerprint = evaluation.verdicts_by_fingerprint()
    for fingerprint, verdict in verdicts_by_fingerprint.items():
        if verdict.holds and not _is_forgotten(instances.get(fingerprint), verdict, evaluation.now_us):
            _update_holding(alert, update, verdict, evaluation.now_us)
        else:
            _update_not_holding(alert, update, verdict, evaluation.now_us)
    for fingerprint, instance in instances.items():
        if fingerprint not in verdicts_by_fingerprint and not evaluation.is_cut:
            _end_group(update, instance, evaluation.now_us)
    for instance in list(update.instances.values()):
        if instance.phase is Phase.FIRING and not is_silenced(instance.labels):
            _queue_change(update, alert, instance, evaluation.now_us, repeat_after)
    return update


def withdraw(instances: Mapping[str, Instance], now_us: int) -> StateUpdate:
    """Return the states after the alert was removed: firing groups are resolved."""
    update = StateUpdate(dict(instances))
    for instance in instances.values():
        _end_group(update, instance, now_us)
    return update


def _is_forgotten(before: Instance | None, verdict: Verdict, now_us: int) -> bool:
    """Return whether a group has had no rows for so long that it no longer counts as missing."""
    if before is None or verdict.is_present or not verdict.labels:
        return False
    return now_us - before.seen_us > GROUP_RETENTION_SECONDS * SECOND_US


def _update_holding(alert: Alert, update: StateUpdate, verdict: Verdict, now_us: int) -> None:
    """Update a group for which the condition holds."""
    before = update.instances.get(verdict.fingerprint)
    if before is None or before.phase is Phase.QUIET:
        since_us, phase, sent_us = now_us, Phase.PENDING, before.sent_us if before else {}
    else:
        since_us, phase, sent_us = before.since_us, before.phase, before.sent_us
    if now_us - since_us >= alert.for_seconds * SECOND_US:
        phase = Phase.FIRING
    seen_us = now_us if verdict.is_present or before is None else before.seen_us
    after = Instance(
        verdict.fingerprint, verdict.labels, phase, since_us, seen_us, verdict.value, verdict.text, sent_us
    )
    update.instances[after.fingerprint] = after
    if before is None or phase is not before.phase:
        update.events.append((str(phase), after))
        update.changed.append(after)


def _update_not_holding(alert: Alert, update: StateUpdate, verdict: Verdict, now_us: int) -> None:
    """Update a group for which the condition does not hold."""
    before = update.instances.get(verdict.fingerprint)
    if before is not None and before.phase is not Phase.QUIET:
        _end_group(update, before, now_us)
    if not (verdict.labels and remembers_groups(alert.condition)):
        return
    if _is_forgotten(before, verdict, now_us):
        if before is not None:
            _remove_group(update, before)
        return
    seen_us = now_us if verdict.is_present or before is None else before.seen_us
    if before is not None and before.phase is Phase.QUIET and seen_us - before.seen_us < _SEEN_STEP_US:
        return
    quiet = Instance(verdict.fingerprint, verdict.labels, Phase.QUIET, now_us, seen_us)
    update.instances[quiet.fingerprint] = quiet
    update.changed.append(quiet)


def _end_group(update: StateUpdate, instance: Instance, now_us: int) -> None:
    """End a pending or firing group, and notify the targets that were notified that it fires."""
    _remove_group(update, instance)
    if instance.phase is not Phase.FIRING:
        return
    update.events.append((str(State.RESOLVED), instance))
    for target in instance.sent_us:
        update.outgoing.append((target, change_of(instance, State.RESOLVED, now_us)))


def _remove_group(update: StateUpdate, instance: Instance) -> None:
    if update.instances.pop(instance.fingerprint, None) is not None:
        update.removed.append(instance.fingerprint)


def _queue_change(
    update: StateUpdate, alert: Alert, instance: Instance, now_us: int, repeat_after: RepeatAfter
) -> None:
    due = [target for target in alert.send_to if _is_due(instance.sent_us.get(target), repeat_after(target), now_us)]
    if not due:
        return
    for target in due:
        update.outgoing.append((target, change_of(instance, State.FIRING, None)))
    sent = msgspec.structs.replace(instance, sent_us={**instance.sent_us, **dict.fromkeys(due, now_us)})
    update.instances[sent.fingerprint] = sent
    update.changed = [changed for changed in update.changed if changed.fingerprint != sent.fingerprint] + [sent]


def _is_due(sent_us: int | None, repeat_seconds: float | None, now_us: int) -> bool:
    if sent_us is None:
        return True
    return repeat_seconds is not None and now_us - sent_us >= repeat_seconds * SECOND_US


def change_of(instance: Instance, state: State, ended_us: int | None) -> Change:
    return Change(
        instance.fingerprint,
        state,
        dict(instance.labels),
        instance.text,
        instance.value,
        instance.since_us,
        ended_us,
    )


class Silence(msgspec.Struct, frozen=True):
    """A silence of one alert, or of all if the name is empty, for groups whose columns have the values in `labels`."""

    id: str
    alert: str
    labels: Mapping[str, str]
    starts_us: int
    ends_us: int
    comment: str
    created_by: str

    def covers(self, alert: str, labels: Labels, now_us: int) -> bool:
        if not self.starts_us <= now_us < self.ends_us or self.alert not in ("", alert):
            return False
        values = dict(labels)
        return all(values.get(name) == value for name, value in self.labels.items())


def is_silenced(silences: Sequence[Silence], alert: str, labels: Labels, now_us: int) -> bool:
    return any(silence.covers(alert, labels, now_us) for silence in silences)
