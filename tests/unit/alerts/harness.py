"""Shared parts of the alert tests: sample alerts, and the group states of an alert over several evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid5

from cordwood.alerts.evaluation import (
    ConditionResult,
    EvaluationResult,
    GroupState,
    StateUpdate,
    evaluate_groups,
    update_group_states,
)
from cordwood.catalog.alert_table import ALERT_ID_NAMESPACE, read_condition
from cordwood.model.definitions import Alert

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US


def make_alert(condition: str = "rows", name: str = "a", **settings: Any) -> Alert:
    parsed = read_condition(condition)
    assert parsed is not None, condition
    return Alert(
        name=name,
        id=uuid5(ALERT_ID_NAMESPACE, name),
        endpoint_name="errors",
        condition=parsed,
        every_seconds=60.0,
        revision="1",
        **settings,
    )


def firing_groups(
    definition: Alert, rows: Sequence[Mapping[str, object]], *more: Any
) -> list[tuple[dict[str, str], float | None]]:
    """Return the labels and the value of each group for which the condition holds."""
    return [
        (dict(verdict.labels), verdict.value)
        for verdict in evaluate_groups(definition, rows, *more)
        if verdict.condition_holds
    ]


class AlertGroups:
    """The group states of an alert. Each evaluation gets rows, and a time in seconds after the start."""

    def __init__(self, definition: Alert, repeat: Mapping[str, float] | None = None) -> None:
        self.alert = definition
        self.instances: Mapping[str, GroupState] = {}
        self.silenced = False
        self._repeat = repeat or {}

    def evaluate_at(self, seconds: float, rows: Sequence[Mapping[str, object]], *, is_cut: bool = False) -> StateUpdate:
        known = {fingerprint: instance.labels for fingerprint, instance in self.instances.items()}
        verdicts: list[ConditionResult] = evaluate_groups(self.alert, rows, (), known)
        step = update_group_states(
            self.alert,
            self.instances,
            EvaluationResult(verdicts, START_US + round(seconds * SECOND_US), is_cut),
            lambda target: self._repeat.get(target, self.alert.repeat_seconds),
            lambda _: self.silenced,
        )
        self.instances = step.states_by_fingerprint
        return step

    def notified(self, seconds: float, rows: Sequence[Mapping[str, object]], **more: bool) -> list[tuple[str, str]]:
        """Evaluate the rows. Return each target to notify, with the new state of the group."""
        return [
            (target, str(change.state)) for target, change in self.evaluate_at(seconds, rows, **more).outgoing_changes
        ]

    @property
    def phases(self) -> list[str]:
        return [str(instance.phase) for instance in self.instances.values()]
