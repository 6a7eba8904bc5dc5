"""Sending batches of events with retries, and the sum of their outcomes."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cordwood.cli.terminal import note, say
from cordwood.cli.wire import Answer, Counterpart

_SHOWN_REASONS = 10


class Patience(msgspec.Struct, frozen=True):
    """The retry policy: how often, for which statuses, and the longest pause."""

    times: int
    statuses: tuple[int, ...] = (429, 503)
    most_seconds: float = math.inf


def sent_events(service: Counterpart, path: str, body: bytes, patience: Patience) -> Answer:
    """Return the answer to a batch; the last refusal if all retries failed."""
    for _ in range(patience.times):
        answer = service.send("POST", path, body, {"Content-Type": "application/x-ndjson"})
        if answer.status not in patience.statuses:
            return answer
        time.sleep(min(patience.most_seconds, float(answer.headers.get("retry-after", "1"))))
    return answer


class Outcome(msgspec.Struct):
    """The sum of the answers to all batches."""

    sums: dict[str, int] = msgspec.field(
        default_factory=lambda: {"accepted": 0, "duplicates": 0, "quarantined": 0, "late": 0}
    )
    reasons: list[str] = msgspec.field(default_factory=list)

    def add(self, told: Mapping[str, Any], named: Callable[[Mapping[str, Any]], str]) -> None:
        """Add an answer; `named` returns the name of the event that a reason is about."""
        self.sums = {name: count + int(told.get(name, 0)) for name, count in self.sums.items()}
        self.reasons += [f"{named(reason)}: {reason['reason']}" for reason in told.get("reasons", [])]

    def tell(self, line: str) -> int:
        """Print the reasons and the line; return the exit code."""
        for reason in self.reasons[:_SHOWN_REASONS]:
            note(f"Quarantined: {reason}")
        say(line)
        return 1 if self.sums["quarantined"] else 0


def show_progress(line: str) -> None:
    """Rewrite the progress line on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    if sys.stderr.isatty():
        note("")
