"""The traffic of the demo: busy days, quiet nights, an incident to find, and then a request every half minute or so."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cordwood.demo.bodies import (
    BACKGROUND_LINES,
    Body,
    Call,
    EventContext,
    Logged,
    auth,
    edge,
    events_of_call,
    function,
    function_line,
    pooler,
    postgres,
    random_call,
    relay,
    slow_statement,
)

DAYS = 7
REQUESTS_A_DAY = 600
# The mean time between requests while the demo runs: about a hundred an hour, while a busy hour of the week has forty.
LIVE_SECONDS = (25.0, 45.0)
# The factor by which background lines are more frequent while the demo runs than in the week.
_LIVE_BACKGROUND = 2.0

PROJECT = "default"
PATH = "/functions/v1/checkout"
_STARTED_AT_MINUTE = 5
SLOW = timedelta(minutes=6)
INCIDENT_DURATION = timedelta(minutes=14)
_FUNCTION = "checkout"
_MIN_AGE = timedelta(hours=3)
_LOCKING = "where cart_id = $1 for update"
_SLOW_CALLS, _FAILED_CALLS, _OTHERS_FAILED = 40, 120, 25


def history_events(now: datetime, seed: int = 7) -> Iterator[tuple[str, list[Body]]]:
    """Yield the events of a week that ends now, by stream, oldest first."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    by_stream: dict[str, list[Body]] = defaultdict(list)
    for stream, event in (*_events_of_week(now, rng), *_incident_events(now, rng)):
        by_stream[stream].append(event)
    for stream, events in by_stream.items():
        yield stream, sorted(events, key=lambda event: str(event["timestamp"]))


class LiveTraffic:
    """The events that arrive while the demo runs: the first request at once, then one every half minute or so."""

    def __init__(self, now: datetime, rng: random.Random) -> None:
        self._rng = rng
        self._next_request_at = self._looked_at = now

    def due(self, now: datetime) -> list[Logged]:
        """Return the events since the previous call, or since the beginning."""
        found: list[Logged] = []
        while self._next_request_at <= now:
            found += events_of_call(random_call(_moment(self._next_request_at, self._rng)))
            self._next_request_at += timedelta(seconds=self._rng.uniform(*LIVE_SECONDS))
        days = (now - self._looked_at) / timedelta(days=1)
        self._looked_at = now
        for per_day, create in BACKGROUND_LINES.values():
            if self._rng.random() < per_day * days * _LIVE_BACKGROUND:
                found.append(create(_moment(now, self._rng)))
        return found


def _events_of_week(now: datetime, rng: random.Random) -> Iterator[Logged]:
    for at in _times(now, REQUESTS_A_DAY * DAYS, rng):
        yield from events_of_call(random_call(_moment(at, rng)))
    for per_day, create in BACKGROUND_LINES.values():
        for at in _times(now, per_day * DAYS, rng):
            yield create(_moment(at, rng))


def _times(now: datetime, count: int, rng: random.Random) -> Iterator[datetime]:
    while count:
        at = now - timedelta(seconds=rng.random() * DAYS * 86_400)
        if rng.random() < _relative_traffic(at):
            count -= 1
            yield at


def _relative_traffic(at: datetime) -> float:
    """Return the traffic relative to the busiest hour: high in the afternoon, low at night and on weekends."""
    day = 0.5 - 0.5 * math.cos((at.hour + at.minute / 60 - 3) / 24 * 2 * math.pi)
    return (0.3 + 0.7 * day) * (0.6 if at.weekday() >= 5 else 1.0)


def _moment(at: datetime, rng: random.Random) -> EventContext:
    return EventContext(at, PROJECT if rng.random() < 0.85 else "acme", rng)


def incident_start(now: datetime) -> datetime:
    """Return the start of the incident in a demo that starts now: at five past an hour, three to four hours ago."""
    hour = (now.astimezone(UTC) - _MIN_AGE).replace(minute=0, second=0, microsecond=0)
    return hour + timedelta(minutes=_STARTED_AT_MINUTE)


def _incident_events(now: datetime, rng: random.Random) -> Iterator[Logged]:
    """Yield the events of the incident, in no order.

    A deployment makes one function slow, then it fails, and requests of others find no connection until a rollback. Its
    requests have the same ids in the streams of the edge, of auth, of the functions and of PostgreSQL.
    """
    start = incident_start(now)
    yield _deployment(EventContext(start, PROJECT, rng), version=4, replaced=3)
    for at in _call_times(start + timedelta(seconds=20), start + SLOW, _SLOW_CALLS, rng):
        yield from _slow_request(EventContext(at, PROJECT, rng))
    for at in _call_times(start + SLOW, start + INCIDENT_DURATION, _FAILED_CALLS, rng):
        yield from _failed_request(EventContext(at, PROJECT, rng))
    for at in _call_times(start + SLOW + timedelta(minutes=2), start + INCIDENT_DURATION, _OTHERS_FAILED, rng):
        yield from _request_without_connection(EventContext(at, PROJECT, rng))
    yield _deployment(EventContext(start + INCIDENT_DURATION, PROJECT, rng), version=3, replaced=4)


def _call_times(period_start: datetime, end: datetime, count: int, rng: random.Random) -> list[datetime]:
    """Return times that lie in equal parts of the period, one in each, so that no minute is empty."""
    return [period_start + (end - period_start) * ((place + rng.random()) / count) for place in range(count)]


def _deployment(context: EventContext, version: int, replaced: int) -> Logged:
    message = f"deployment {PROJECT}_{_FUNCTION}_{version} is live, it replaces {PROJECT}_{_FUNCTION}_{replaced}"
    return function_line(context, _FUNCTION, ("Deploy", "info", message), version)


def _slow_request(context: EventContext) -> Iterator[Logged]:
    """Yield a request of the new version, which waits for locks of other requests."""
    call = _call(context, PATH, 200, context.rng.randint(2_000, 7_000))
    yield edge(call)
    yield auth(call, "token_checked", "/user", 200)
    yield relay(call, version=4)
    yield function(call, "Log", "info", "checkout session created", version=4)
    yield postgres(call.at_share(0.9), "LOG", "00000", slow_statement(call, "orders", _LOCKING), call.id)


def _failed_request(context: EventContext) -> Iterator[Logged]:
    """Yield a request that the database ended because too many were waiting."""
    status = context.rng.choice((500, 500, 504))
    call = _call(context, PATH, status, context.rng.randint(8_000, 10_000))
    yield edge(call)
    yield auth(call, "token_checked", "/user", 504 if context.chance(0.2) else 200)
    yield relay(call, version=4)
    yield function(call, "Log", "error", "PostgresError: canceling statement due to lock timeout", version=4)
    yield postgres(call.at_share(0.9), "ERROR", "55P03", "canceling statement due to lock timeout", call.id)


def _request_without_connection(context: EventContext) -> Iterator[Logged]:
    """Yield the events of a request to an unrelated path that failed because the connection pool was exhausted."""
    call = _call(context, context.choose("/rest/v1/orders", "/rest/v1/products"), 503, context.rng.randint(900, 1_100))
    yield edge(call)
    slots = "remaining connection slots are reserved for roles with the SUPERUSER attribute"
    yield postgres(call.at_share(0.9), "FATAL", "53300", slots, call.id)
    yield pooler(context, "pool postgres/authenticator is full: 60 connections in use, clients wait")


def _call(context: EventContext, path: str, status: int, milliseconds: int) -> Call:
    method = "POST" if path == PATH else "GET"
    return Call(context, context.uuid(), method, path, status, milliseconds, context.address())
