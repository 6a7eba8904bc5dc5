"""Silences: for a time, groups of an alert are not sent to targets."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cordwood.alerts.conditions import Labels

MAX_SILENCES: Final = 500


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
