"""The observer passes observations to its sinks: the log and the metrics."""

from collections.abc import Callable, Sequence
from typing import Protocol

# Takes a message for the operator.
Report = Callable[[str], None]


# Takes an observation.
Note = Callable[[object], None]


def report_nothing(_: str) -> None:
    """Drop the message."""


def note_nothing(_: object) -> None:
    """Drop the observation."""


class Sink(Protocol):
    """A consumer of observations, which ignores those that it does not need. It must be fast and must not raise."""

    def note(self, observation: object) -> None: ...


class Observer:
    """Passes every observation to every sink. Thread-safe if its sinks are."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = tuple(sinks)

    def note(self, observation: object) -> None:
        for sink in self._sinks:
            sink.note(observation)
