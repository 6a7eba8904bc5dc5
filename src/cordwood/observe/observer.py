"""Where observations go: to the log and to the metrics, each choosing what it needs."""

from collections.abc import Callable, Sequence
from typing import Protocol

# Takes a sentence for the operator.
Tell = Callable[[str], None]


# Takes an observation.
Note = Callable[[object], None]


def tell_nobody(_: str) -> None:
    """Where nobody listens."""


def note_nothing(_: object) -> None:
    """Where nobody listens."""


class Sink(Protocol):
    """Takes observations of every kind and keeps those it cares for. Must be quick and must not raise."""

    def note(self, observation: object) -> None: ...


class Observer:
    """Hands every observation to every sink. Safe from any thread when its sinks are."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = tuple(sinks)

    def note(self, observation: object) -> None:
        for sink in self._sinks:
            sink.note(observation)
