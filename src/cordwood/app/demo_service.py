"""The demo: a week of events before the first request, and new events every second."""

import asyncio
import random
from datetime import UTC, datetime

import msgspec

from cordwood import demo
from cordwood.app.compose import Components
from cordwood.observe.observation import Ingested
from cordwood.observe.observer import Observer

_BY_STATUS = (
    "select response.status_code as status, count(*) as requests from edge_logs"
    " cross join unnest(metadata) as m cross join unnest(m.response) as response"
    " group by status order by requests desc"
)


async def post_history(components: Components) -> None:
    """Store a week of events in every stream."""
    for stream, events in demo.history_events(datetime.now(UTC)):
        await _post(components, stream, events)


async def post_continuously(components: Components, observer: Observer) -> None:
    """Store new demo events every second until cancelled, and log them as events that a client sent."""
    random_source = random.Random()  # noqa: S311 - dice for play, not for secrets
    while True:
        await asyncio.sleep(1.0)
        for stream, events in demo.current_events(datetime.now(UTC), random_source):
            await _post(components, stream, events)
            observer.note(Ingested(stream=stream, accepted=len(events)))


def example_commands(url: str, key: str) -> tuple[str, str, str]:
    """Return three example commands to paste; each returns rows of the demo data."""
    return (
        f"curl -s '{url}/api/endpoints/query/usage.api-counts?interval=daily&project=default' -H 'X-API-KEY: {key}'",
        f"curl -s '{url}/api/endpoints/query/logs.all?project=default' -H 'X-API-KEY: {key}'",
        (
            f"curl -sG '{url}/api/endpoints/query/logs.all' -H 'X-API-KEY: {key}' -d project=default"
            f" --data-urlencode 'sql={_BY_STATUS}'"
        ),
    )


async def _post(components: Components, stream: str, events: list[demo.Body]) -> None:
    known_stream = components.catalog.stream(stream)
    if known_stream is not None:
        await components.services.intake.accept(known_stream, "application/json", msgspec.json.encode(events))
