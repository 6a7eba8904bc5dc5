"""Sending events batch by batch: how long a service that is busy is waited for, and what became of them."""

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
    """Which refusals are waited out, how often, and for how long at the most."""

    times: int
    statuses: tuple[int, ...] = (429, 503)
    most_seconds: float = math.inf


def sent_events(service: Counterpart, path: str, body: bytes, patience: Patience) -> Answer:
    """The answer to a batch; the last refusal where patience was not enough."""
    for _ in range(patience.times):
        answer = service.send("POST", path, body, {"Content-Type": "application/x-ndjson"})
        if answer.status not in patience.statuses:
            return answer
        time.sleep(min(patience.most_seconds, float(answer.headers.get("retry-after", "1"))))
    return answer


class Outcome(msgspec.Struct):
    """What became of the events so far, by the answers to their batches."""

    sums: dict[str, int] = msgspec.field(
        default_factory=lambda: {"accepted": 0, "duplicates": 0, "quarantined": 0, "late": 0}
    )
    reasons: list[str] = msgspec.field(default_factory=list)

    def add(self, told: Mapping[str, Any], named: Callable[[Mapping[str, Any]], str]) -> None:
        """`named` says of which event a reason is."""
        self.sums = {name: count + int(told.get(name, 0)) for name, count in self.sums.items()}
        self.reasons += [f"{named(reason)}: {reason['reason']}" for reason in told.get("reasons", [])]

    def tell(self, line: str) -> int:
        """Why events were set aside, and the line; what the command ends with."""
        for reason in self.reasons[:_SHOWN_REASONS]:
            note(f"Set aside, {reason}")
        say(line)
        return 1 if self.sums["quarantined"] else 0


def show_progress(line: str) -> None:
    """Written over and over, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    if sys.stderr.isatty():
        note("")
