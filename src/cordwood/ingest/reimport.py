"""Import of exported events, which are stored unchanged."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from cordwood.errors import BadBody, Forbidden
from cordwood.ingest.event_validator import ForeignProject, with_pinned_project
from cordwood.ingest.items import too_many
from cordwood.ingest.parsed_body import MAX_ITEMS
from cordwood.model.event import Event
from cordwood.model.json_checks import describe_json_error

# A time in the years 1 to 9999, in microseconds since 1970.
_Time = Annotated[int, Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]


class ExportedEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One line of an export. Times are in microseconds since 1970 UTC; `metadata` and `extras` are JSON text."""

    id: str
    timestamp: _Time
    ingested_at: _Time
    event_message: str | None = None
    project: str | None = None
    metadata: str | None = None
    extras: str | None = None
    timestamp_inferred: bool = False


_decode_lines = msgspec.json.Decoder(ExportedEvent).decode_lines


def read_exported(
    body: bytes, pinned_project: str | None, project_at: Sequence[str] = (), limit: int = MAX_ITEMS
) -> list[Event]:
    """Decode exported events. Nothing is derived, checked by time or quarantined; one invalid line is a BadBody."""
    if body.count(b"\n") > limit:
        raise too_many(limit)
    try:
        lines = _decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadBody(
            f"The body cannot be read: {describe_json_error(problem, body)}.",
            hint="The body must be an export as `cordwood import` sends it, one event on each line.",
        ) from problem
    events = [_event(line) for line in lines]
    return events if pinned_project is None else _require_project(events, pinned_project, project_at)


def _require_project(events: list[Event], project: str, project_at: Sequence[str]) -> list[Event]:
    """Return the events; raise Forbidden unless all of them belong to the pinned project."""
    try:
        held = [with_pinned_project(event, project_at, project) for event in events] if project_at else events
    except ForeignProject:
        held = []
    except RecursionError as problem:
        raise BadBody("An event is nested too deeply to check its project.") from problem
    if len(held) < len(events) or any(event.project != project for event in held):
        raise Forbidden(f"This key is pinned to project {project!r}, and some events belong to another.")
    return held


def _event(line: ExportedEvent) -> Event:
    return Event(
        line.id,
        line.timestamp,
        line.event_message,
        line.project,
        line.metadata,
        line.extras,
        line.timestamp_inferred,
        received_us=line.ingested_at,
    )
