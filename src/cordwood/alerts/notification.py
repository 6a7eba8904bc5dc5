"""Notifications: the changes of one alert that are sent to one target together."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from cordwood.model.definitions import Severity


class NotifiedState(StrEnum):
    """The state of a group that a notification reports."""

    FIRING = "firing"
    RESOLVED = "resolved"


class StateChange(msgspec.Struct, frozen=True):
    """A change of the state of one group. Its texts may come from senders of events, and are limited in length.

    `fingerprint` identifies the alert and the group. It is the same when the group fires and when the group is
    resolved. `labels` are the columns that form the group, with their values. `value` is the value that the condition
    compared.
    """

    fingerprint: str
    state: NotifiedState
    labels: Mapping[str, str]
    text: str
    value: float | None
    started_us: int
    ended_us: int | None = None


class Notification(msgspec.Struct, frozen=True):
    """The changes of one alert that are sent to one target together.

    `id` is the same when the notification is sent again. `omitted_change_count` is the number of further changes that
    are not in `changes`. Until `expires_us`, a receiver can assume that firing groups still fire, unless another
    notification about them arrives. `alert_page_url` is the page of the alert, or empty.
    """

    id: str
    alert_name: str
    endpoint_name: str
    severity: Severity
    changes: tuple[StateChange, ...]
    created_us: int
    expires_us: int
    omitted_change_count: int = 0
    alert_page_url: str = ""


class DeliveryFailed(Exception):
    """Raised if a notification was not delivered.

    `reason` is a sentence without secrets. `retry_after_seconds` is the pause that the target requests, or None.
    """

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
