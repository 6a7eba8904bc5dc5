"""The demo's traffic: busy days, quiet nights, the incident, and afterwards a request every half minute or so."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from cordwood.demo.bodies import BACKGROUND, Body, Logged, Moment, logged_of, random_call
from cordwood.demo.incident import PROJECT, incident_events

DAYS = 7
REQUESTS_A_DAY = 600
# Between two requests that arrive while the demo runs: about a hundred an hour, where a busy hour of the week has forty.
LIVE_SECONDS = (25.0, 45.0)
# A stream logs by itself about twice as much while the demo runs as in the week.
_LIVE_BACKGROUND = 2.0


def history_events(now: datetime, seed: int = 7) -> Iterator[tuple[str, list[Body]]]:
    """Yield a week of events that ends now, by stream, oldest first."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    by_stream: dict[str, list[Body]] = defaultdict(list)
    for stream, event in (*_week(now, rng), *incident_events(now, rng)):
        by_stream[stream].append(event)
    for stream, events in by_stream.items():
        yield stream, sorted(events, key=lambda event: str(event["timestamp"]))


class LiveTraffic:
    """What arrives while the demo runs: the first request at once, then one every half minute or so."""

    def __init__(self, now: datetime, rng: random.Random) -> None:
        self._rng = rng
        self._next_request_at = self._looked_at = now

    def due(self, now: datetime) -> list[Logged]:
        """Return the events since the call before, or since the beginning."""
        found: list[Logged] = []
        while self._next_request_at <= now:
            found += logged_of(random_call(_moment(self._next_request_at, self._rng)))
            self._next_request_at += timedelta(seconds=self._rng.uniform(*LIVE_SECONDS))
        days = (now - self._looked_at) / timedelta(days=1)
        self._looked_at = now
        for per_day, create in BACKGROUND.values():
            if self._rng.random() < per_day * days * _LIVE_BACKGROUND:
                found.append(create(_moment(now, self._rng)))
        return found


def _week(now: datetime, rng: random.Random) -> Iterator[Logged]:
    for at in _times(now, REQUESTS_A_DAY * DAYS, rng):
        yield from logged_of(random_call(_moment(at, rng)))
    for per_day, create in BACKGROUND.values():
        for at in _times(now, per_day * DAYS, rng):
            yield create(_moment(at, rng))


def _times(now: datetime, count: int, rng: random.Random) -> Iterator[datetime]:
    while count:
        at = now - timedelta(seconds=rng.random() * DAYS * 86_400)
        if rng.random() < _relative_traffic(at):
            count -= 1
            yield at


def _relative_traffic(at: datetime) -> float:
    """Return the traffic relative to the busiest hour: most in the afternoon, less at night and on weekends."""
    day = 0.5 - 0.5 * math.cos((at.hour + at.minute / 60 - 3) / 24 * 2 * math.pi)
    return (0.3 + 0.7 * day) * (0.6 if at.weekday() >= 5 else 1.0)


def _moment(at: datetime, rng: random.Random) -> Moment:
    return Moment(at, PROJECT if rng.random() < 0.85 else "acme", rng)
