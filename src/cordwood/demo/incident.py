"""An incident to find: a deploy makes one function slow, then it fails, and connections of others run out until a rollback.

Its requests have the same ids in the streams of the edge, of auth, of the functions and of PostgreSQL.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cordwood.demo.bodies import (
    Call,
    Logged,
    Moment,
    auth,
    edge,
    function,
    function_line,
    pooler,
    postgres,
    relay,
    slow_statement,
)

PROJECT = "default"
PATH = "/functions/v1/checkout"
STARTED_AT_MINUTE = 5
SLOW = timedelta(minutes=6)
LASTS = timedelta(minutes=14)
_FUNCTION = "checkout"
_LEAST_AGE = timedelta(hours=3)
_LOCKING = "where cart_id = $1 for update"
_SLOW_CALLS, _FAILED_CALLS, _OTHERS_FAILED = 40, 120, 25


def incident_start(now: datetime) -> datetime:
    """Return when the incident of a demo that starts now began: five minutes past an hour, three to four hours ago."""
    hour = (now.astimezone(UTC) - _LEAST_AGE).replace(minute=0, second=0, microsecond=0)
    return hour + timedelta(minutes=STARTED_AT_MINUTE)


def incident_events(now: datetime, rng: random.Random) -> Iterator[Logged]:
    """Yield the events of the incident, in no order."""
    start = incident_start(now)
    yield _deployment(Moment(start, PROJECT, rng), version=4, replaced=3)
    for at in _times(start + timedelta(seconds=20), start + SLOW, _SLOW_CALLS, rng):
        yield from _slow(Moment(at, PROJECT, rng))
    for at in _times(start + SLOW, start + LASTS, _FAILED_CALLS, rng):
        yield from _failed(Moment(at, PROJECT, rng))
    for at in _times(start + SLOW + timedelta(minutes=2), start + LASTS, _OTHERS_FAILED, rng):
        yield from _other_failed(Moment(at, PROJECT, rng))
    yield _deployment(Moment(start + LASTS, PROJECT, rng), version=3, replaced=4)


def _times(start: datetime, end: datetime, count: int, rng: random.Random) -> list[datetime]:
    """Return times of which each lies in its own part of the period, so that no minute is empty."""
    return [start + (end - start) * ((place + rng.random()) / count) for place in range(count)]


def _deployment(moment: Moment, version: int, replaced: int) -> Logged:
    message = f"deployment {PROJECT}_{_FUNCTION}_{version} is live, it replaces {PROJECT}_{_FUNCTION}_{replaced}"
    return function_line(moment, _FUNCTION, ("Deploy", "info", message), version)


def _slow(moment: Moment) -> Iterator[Logged]:
    """Yield a request of the new version, which waits for the locks of others."""
    call = _call(moment, PATH, 200, moment.rng.randint(2_000, 7_000))
    yield edge(call)
    yield auth(call, "token_checked", "/user", 200)
    yield relay(call, version=4)
    yield function(call, "Log", "info", "checkout session created", version=4)
    yield postgres(call.at_share(0.9), "LOG", "00000", slow_statement(call, "orders", _LOCKING), call.id)


def _failed(moment: Moment) -> Iterator[Logged]:
    """Yield a request that the database ended, because so many waited."""
    status = moment.rng.choice((500, 500, 504))
    call = _call(moment, PATH, status, moment.rng.randint(8_000, 10_000))
    yield edge(call)
    yield auth(call, "token_checked", "/user", 504 if moment.chance(0.2) else 200)
    yield relay(call, version=4)
    yield function(call, "Log", "error", "PostgresError: canceling statement due to lock timeout", version=4)
    yield postgres(call.at_share(0.9), "ERROR", "55P03", "canceling statement due to lock timeout", call.id)


def _other_failed(moment: Moment) -> Iterator[Logged]:
    """Yield a request of another path, which finds no connection left."""
    call = _call(moment, moment.choose("/rest/v1/orders", "/rest/v1/products"), 503, moment.rng.randint(900, 1_100))
    yield edge(call)
    slots = "remaining connection slots are reserved for roles with the SUPERUSER attribute"
    yield postgres(call.at_share(0.9), "FATAL", "53300", slots, call.id)
    yield pooler(moment, "pool postgres/authenticator is full: 60 connections in use, clients wait")


def _call(moment: Moment, path: str, status: int, milliseconds: int) -> Call:
    method = "POST" if path == PATH else "GET"
    return Call(moment, moment.uuid(), method, path, status, milliseconds, moment.address())
