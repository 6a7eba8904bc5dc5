"""The states of the groups of an alert, how they change with each evaluation, and the silences of groups."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from cordwood.alerts.conditions import Labels, Verdict, remembers_groups
from cordwood.alerts.notification import Change, State
from cordwood.model.alert import Alert

SECOND_US: Final = 1_000_000
# A group that had rows is forgotten when it has had none for so long; if it fires, it is resolved.
FORGET_SECONDS: Final = 7 * 86_400.0
# That a quiet group was seen again is recorded in steps, so that most evaluations write nothing.
_SEEN_STEP_US: Final = 3_600 * SECOND_US
MAX_SILENCES: Final = 500


class Phase(StrEnum):
    """The phase of a group. A quiet group is kept only by alerts that fire when it has no rows."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


class Instance(msgspec.Struct, frozen=True):
    """A group of an alert. `since_us` is when its phase began, `seen_us` when it last had rows.

    `sent_us` is when each target was last sent that it fires.
    """

    fingerprint: str
    labels: Labels
    phase: Phase
    since_us: int
    seen_us: int
    value: float | None = None
    text: str = ""
    sent_us: Mapping[str, int] = msgspec.field(default_factory=dict)


class Step(msgspec.Struct):
    """The result of an evaluation: all instances, those that changed, and what is sent to targets."""

    instances: dict[str, Instance]
    changed: list[Instance] = []
    removed: list[str] = []
    outgoing: list[tuple[str, Change]] = []
    # Groups that began to be pending or firing, or ended, for the history.
    events: list[tuple[str, Instance]] = []


class Evaluation(msgspec.Struct, frozen=True):
    """The verdicts of one evaluation. `is_cut`: the answer had more rows, so that groups without a verdict stay."""

    verdicts: Sequence[Verdict]
    now_us: int
    is_cut: bool = False

    def judged(self) -> Mapping[str, Verdict]:
        """Return the verdicts by fingerprint, without those of groups that may have rows beyond the end of the answer."""
        return {
            verdict.fingerprint: verdict
            for verdict in self.verdicts
            if verdict.is_present or not (self.is_cut and verdict.labels)
        }


# How long after a firing state was sent to a target it is sent again; None: never.
RepeatAfter = Callable[[str], float | None]


def advance(
    alert: Alert,
    instances: Mapping[str, Instance],
    evaluation: Evaluation,
    repeat_after: RepeatAfter,
    is_silenced: Callable[[Labels], bool],
) -> Step:
    """Return the states after an evaluation. What is silenced is not sent, and is sent when the silence has ended."""
    step = Step(dict(instances))
    judged = evaluation.judged()
    for fingerprint, verdict in judged.items():
        if verdict.holds and not _is_forgotten(instances.get(fingerprint), verdict, evaluation.now_us):
            _hold(alert, step, verdict, evaluation.now_us)
        else:
            _rest(alert, step, verdict, evaluation.now_us)
    for fingerprint, instance in instances.items():
        if fingerprint not in judged and not evaluation.is_cut:
            _end(step, instance, evaluation.now_us)
    for instance in list(step.instances.values()):
        if instance.phase is Phase.FIRING and not is_silenced(instance.labels):
            _send(step, alert, instance, evaluation.now_us, repeat_after)
    return step


def withdraw(instances: Mapping[str, Instance], now_us: int) -> Step:
    """Return the states after the alert was removed: what fires is resolved."""
    step = Step(dict(instances))
    for instance in instances.values():
        _end(step, instance, now_us)
    return step


def _is_forgotten(before: Instance | None, verdict: Verdict, now_us: int) -> bool:
    """Return whether a group has had no rows for so long that it no longer counts as missing."""
    if before is None or verdict.is_present or not verdict.labels:
        return False
    return now_us - before.seen_us > FORGET_SECONDS * SECOND_US


def _hold(alert: Alert, step: Step, verdict: Verdict, now_us: int) -> None:
    """Advance a group for which the condition holds."""
    before = step.instances.get(verdict.fingerprint)
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
    step.instances[after.fingerprint] = after
    if before is None or phase is not before.phase:
        step.events.append((str(phase), after))
        step.changed.append(after)


def _rest(alert: Alert, step: Step, verdict: Verdict, now_us: int) -> None:
    """Advance a group for which the condition does not hold."""
    before = step.instances.get(verdict.fingerprint)
    if before is not None and before.phase is not Phase.QUIET:
        _end(step, before, now_us)
    if not (verdict.labels and remembers_groups(alert.condition)):
        return
    if _is_forgotten(before, verdict, now_us):
        if before is not None:
            _remove(step, before)
        return
    seen_us = now_us if verdict.is_present or before is None else before.seen_us
    if before is not None and before.phase is Phase.QUIET and seen_us - before.seen_us < _SEEN_STEP_US:
        return
    quiet = Instance(verdict.fingerprint, verdict.labels, Phase.QUIET, now_us, seen_us)
    step.instances[quiet.fingerprint] = quiet
    step.changed.append(quiet)


def _end(step: Step, instance: Instance, now_us: int) -> None:
    """End what is pending or fires, and tell the targets that were told that it fires."""
    _remove(step, instance)
    if instance.phase is not Phase.FIRING:
        return
    step.events.append((str(State.RESOLVED), instance))
    for target in instance.sent_us:
        step.outgoing.append((target, change_of(instance, State.RESOLVED, now_us)))


def _remove(step: Step, instance: Instance) -> None:
    if step.instances.pop(instance.fingerprint, None) is not None:
        step.removed.append(instance.fingerprint)


def _send(step: Step, alert: Alert, instance: Instance, now_us: int, repeat_after: RepeatAfter) -> None:
    due = [target for target in alert.send_to if _is_due(instance.sent_us.get(target), repeat_after(target), now_us)]
    if not due:
        return
    for target in due:
        step.outgoing.append((target, change_of(instance, State.FIRING, None)))
    sent = msgspec.structs.replace(instance, sent_us={**instance.sent_us, **dict.fromkeys(due, now_us)})
    step.instances[sent.fingerprint] = sent
    step.changed = [changed for changed in step.changed if changed.fingerprint != sent.fingerprint] + [sent]


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
    """A silence of an alert, or of all with an empty name; of the groups whose columns have the values of `labels`."""

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
