"""The demo: a week of events before the first request, then a new request every half minute or so."""

import asyncio
import random
from datetime import UTC, datetime

import msgspec

from cordwood.app.compose import Components
from cordwood.demo import PROJECT, Body, LiveTraffic, history_events, incident_start
from cordwood.observe.observation import Ingested, Observer

_FAILURES_BY_PATH_SQL = (
    "select request.path, count(*) as failed from edge_logs cross join unnest(metadata) as m"
    " cross join unnest(m.request) as request cross join unnest(m.response) as response"
    " where response.status_code >= 500 group by path order by failed desc"
)


async def post_history(components: Components, now: datetime) -> None:
    """Store a week of events that ends now in every stream."""
    for stream, events in history_events(now):
        await _post(components, stream, events)


async def post_continuously(components: Components, observer: Observer) -> None:
    """Store new demo events until cancelled, and log them like events that a client sent."""
    traffic = LiveTraffic(datetime.now(UTC), random.Random())  # noqa: S311 - no secret
    while True:
        await asyncio.sleep(1.0)
        for stream, event in traffic.due(datetime.now(UTC)):
            await _post(components, stream, [event])
            observer.note(Ingested(stream=stream, accepted=1))


def incident_hint(now: datetime) -> str:
    """Return the sentence that says when the demo's incident happened."""
    at = f"{incident_start(now):%H:%M}"
    return f"Project {PROJECT} had an incident at {at} UTC. docs/guide/incident.md finds it step by step."


def sign_in_link(url: str, key: str) -> str:
    """Return a link that signs in to the explorer. Browsers do not send the key, which follows the #."""
    return f"{url}/sign-in#{key}"


def example_commands(url: str, key: str) -> tuple[str, str, str]:
    """Return three commands to paste, each of which prints rows of the demo's data."""
    query = f"{url}/api/endpoints/query"
    return (
        f"curl -s '{query}/usage.api-counts?interval=daily&project={PROJECT}' -H 'X-API-KEY: {key}'",
        f"curl -s '{query}/logs.all?project={PROJECT}' -H 'X-API-KEY: {key}'",
        (
            f"curl -sG '{query}/logs.all' -H 'X-API-KEY: {key}' -d project={PROJECT}"
            f" --data-urlencode 'sql={_FAILURES_BY_PATH_SQL}'"
        ),
    )


async def _post(components: Components, stream: str, events: list[Body]) -> None:
    known_stream = components.catalog.stream(stream)
    if known_stream is not None:
        await components.services.intake.accept(known_stream, "application/json", msgspec.json.encode(events))
