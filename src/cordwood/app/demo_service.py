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


async def fill(components: Components) -> None:
    """Store a week of events in every stream."""
    for stream, events in demo.past(datetime.now(UTC)):
        await _post(components, stream, events)


async def arrive(components: Components, observer: Observer) -> None:
    """Store new events every second until cancelled, logged like any other events."""
    dice = random.Random()  # noqa: S311 - dice for play, not for secrets
    while True:
        await asyncio.sleep(1.0)
        for stream, events in demo.arriving(datetime.now(UTC), dice):
            await _post(components, stream, events)
            observer.note(Ingested(stream=stream, accepted=len(events)))


def calls(url: str, key: str) -> tuple[str, str, str]:
    """Return three commands to paste whose answers have rows."""
    return (
        f"curl -s '{url}/api/endpoints/query/usage.api-counts?interval=daily&project=default' -H 'X-API-KEY: {key}'",
        f"curl -s '{url}/api/endpoints/query/logs.all?project=default' -H 'X-API-KEY: {key}'",
        (
            f"curl -sG '{url}/api/endpoints/query/logs.all' -H 'X-API-KEY: {key}' -d project=default"
            f" --data-urlencode 'sql={_BY_STATUS}'"
        ),
    )


async def _post(components: Components, stream: str, events: list[demo.Body]) -> None:
    found = components.catalog.stream(stream)
    if found is not None:
        await components.services.intake.accept(found, "application/json", msgspec.json.encode(events))
