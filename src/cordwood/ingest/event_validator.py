"""Validate events: their size, nesting and times, and the pins of the sender's key.

If the key is pinned to a project, this project is also required inside the metadata, at the path that the stream
configures.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cordwood.ingest.event_values import MAX_NESTING_LEVELS, is_too_deep
from cordwood.ingest.items import raw_to_text
from cordwood.ingest.limits import event_character_count
from cordwood.ingest.parsed_body import ParsedBody
from cordwood.model.definitions import EventTimePolicy, Stream
from cordwood.model.event import Event

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode

_EMPTY_JSON_OBJECT = msgspec.Raw(b"{}")


class ForeignProject(Exception):
    """Raised for an event that names another project than the one to which the sender's key is pinned."""

    def __init__(self, claimed: str) -> None:
        super().__init__(claimed)
        self.claimed_project = claimed


def with_pinned_project(event: Event, project_path: Sequence[str], project: str) -> Event:
    """Set the project inside the metadata of an event, in every record that `project_path` leads to.

    Raise ForeignProject if a record names another project. The metadata is encoded again, so that only one of several
    equal keys in an object remains.
    """
    metadata = msgspec.Raw(event.metadata.encode()) if event.metadata is not None else _EMPTY_JSON_OBJECT
    held = _set_project(metadata, project_path, project)
    return msgspec.structs.replace(event, metadata=bytes(held).decode())


def _set_project(value: msgspec.Raw, project_path: Sequence[str], project: str) -> msgspec.Raw:
    """Set the project in a record, or in each record of an array; return any other value unchanged."""
    match _first_character(value):
        case "{":
            return _set_project_in_record(value, project_path, project)
        case "[":
            elements = _array_decoder.decode(value)
            return msgspec.Raw(
                _encode(
                    [
                        _set_project_in_record(one, project_path, project) if _first_character(one) == "{" else one
                        for one in elements
                    ]
                )
            )
        case _:
            return value


def _set_project_in_record(value: msgspec.Raw, project_path: Sequence[str], project: str) -> msgspec.Raw:
    fields, (step, *rest) = _object_decoder.decode(value), project_path
    there = fields.get(step, msgspec.Raw(b"null"))
    if rest:
        fields[step] = _set_project(_EMPTY_JSON_OBJECT if raw_to_text(there) is None else there, rest, project)
    elif (claimed := raw_to_text(there)) is None:
        fields[step] = msgspec.Raw(_encode(project))
    elif claimed != project:
        raise ForeignProject(claimed)
    return msgspec.Raw(_encode(fields))


def _first_character(value: msgspec.Raw) -> str:
    return bytes(value).lstrip()[:1].decode()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# These fields identify an event or are set by the service, so a pin cannot set them. Events whose sender's key has such
# a pin are quarantined.
_UNPINNABLE_FIELDS = frozenset({"id", "timestamp", "event_message", "metadata", "ingested_at", "timestamp_inferred"})


class EventValidator(msgspec.Struct, frozen=True):
    """Validates the events of a body.

    If the sender's key pins a field, and an event lacks it, the field is set to the pinned value. An event that has
    another value in this field is quarantined.
    """

    stream: Stream
    pins: Mapping[str, str]
    received_us: int
    max_event_bytes: int

    def validate_events(self, events: list[Event], parsed: ParsedBody) -> list[Event]:
        """Return the valid events, and add the invalid ones to the refused items of `parsed`."""
        if not (self.pins or self._has_event_out_of_time_bounds(events)) and not any(
            map(self._is_too_large_or_deep, events)
        ):
            return events
        kept = []
        for project_path, event in enumerate(events):
            parsed.out_of_time_bounds_counts.update(self._exceeded_time_bound(event))
            outcome = self._validate_event(event)
            if isinstance(outcome, Event):
                kept.append(outcome)
            else:
                parsed.refuse_item(
                    parsed.item_index(project_path), outcome, encode_event_for_repost(event), is_event=True
                )
        return kept

    def _validate_event(self, event: Event) -> Event | str:
        """Return the event in the form in which it is stored, or, as a text, the reason for quarantining it."""
        if event_character_count(event) > self.max_event_bytes:
            return f"The event is larger than {self.max_event_bytes} bytes."
        if is_too_deep(event):
            return f"The event is nested deeper than {MAX_NESTING_LEVELS} levels."
        held = self._enforce_pins(event)
        return self._apply_time_policy(held) if isinstance(held, Event) else held

    def _is_too_large_or_deep(self, event: Event) -> bool:
        return event_character_count(event) > self.max_event_bytes or is_too_deep(event)

    def _enforce_pins(self, event: Event) -> Event | str:
        for name, value in self.pins.items():
            outcome = _apply_pin(event, name, value)
            if not isinstance(outcome, Event):
                return outcome
            event = outcome
        return self._enforce_project_in_metadata(event)

    def _enforce_project_in_metadata(self, event: Event) -> Event | str:
        project = self.pins.get("project")
        if project is None or not self.stream.project_at:
            return event
        try:
            return with_pinned_project(event, self.stream.project_at, project)
        except ForeignProject as foreign:
            field = ".".join(("metadata", *self.stream.project_at))
            return f"The key is pinned to project {project!r}, the event's {field} is {foreign.claimed_project!r}."

    def _has_event_out_of_time_bounds(self, events: list[Event]) -> bool:
        times = [event.timestamp_us for event in events]
        return bool(times) and (min(times) < self._earliest_allowed_us or max(times) > self._latest_allowed_us)

    def _exceeded_time_bound(self, event: Event) -> tuple[str, ...]:
        """Return `("late",)` or `("future",)` if the event's time is out of bounds, else an empty tuple."""
        if event.timestamp_us < self._earliest_allowed_us:
            return ("late",)
        return ("future",) if event.timestamp_us > self._latest_allowed_us else ()

    @property
    def _earliest_allowed_us(self) -> float:
        late = self.stream.late_after_seconds
        return -math.inf if late is None else self.received_us - late * 1e6

    @property
    def _latest_allowed_us(self) -> float:
        future = self.stream.future_seconds
        return math.inf if future is None else self.received_us + future * 1e6

    def _apply_time_policy(self, event: Event) -> Event | str:
        match self._exceeded_time_bound(event):
            case ("late",):
                return _apply_out_of_bounds_policy(
                    event, self.stream.late_policy, round(self._earliest_allowed_us), "late"
                )
            case ("future",):
                return _apply_out_of_bounds_policy(
                    event, self.stream.future_policy, round(self._latest_allowed_us), "from the future"
                )
            case _:
                return event


def count_events_past_retention(stream: Stream, events: Sequence[Event], now_us: int) -> int:
    """Count the events that are older than the stream's retention. They are stored, but the next sweep deletes them."""
    if stream.retention_seconds is None:
        return 0
    oldest_us = now_us - stream.retention_seconds * 1e6
    return sum(event.timestamp_us < oldest_us for event in events)


def _apply_pin(event: Event, name: str, value: str) -> Event | str:
    """Return the event with the pinned field set, or, as a text, the reason for quarantining the event."""
    if name in _UNPINNABLE_FIELDS:
        return f"The key is pinned to {name} {value!r}, and {name} cannot be set by a pin."
    claimed = event.project if name == "project" else _extra_text(event, name)
    if claimed == value:
        return event
    if claimed is not None:
        return f"The key is pinned to {name} {value!r}, the event is of {claimed!r}."
    return msgspec.structs.replace(event, project=value) if name == "project" else _set_extra(event, name, value)


def _decode_extras(event: Event) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(event.extras, type=dict[str, msgspec.Raw]) if event.extras else {}


def _extra_text(event: Event, name: str) -> str | None:
    """Return the value of a top-level field as text: a string unchanged, any other value as JSON."""
    return raw_to_text(_decode_extras(event).get(name))


def _set_extra(event: Event, name: str, value: str) -> Event:
    stamped = _decode_extras(event) | {name: msgspec.Raw(msgspec.json.encode(value))}
    return msgspec.structs.replace(event, extras=msgspec.json.encode(stamped).decode())


def needs_validation(stream: Stream, pins: Mapping[str, str], body_bytes: int, max_event_bytes: int) -> bool:
    has_bounds = stream.late_after_seconds is not None or stream.future_seconds is not None
    return bool(pins) or has_bounds or body_bytes > max_event_bytes


def _apply_out_of_bounds_policy(event: Event, policy: EventTimePolicy, bound_us: int, direction: str) -> Event | str:
    if policy is EventTimePolicy.CLAMP:
        return msgspec.structs.replace(event, timestamp_us=bound_us, timestamp_inferred=True)
    if policy is EventTimePolicy.QUARANTINE:
        return f"The event is too {direction}." if direction == "late" else f"The event is too far {direction}."
    return event


def encode_event_for_repost(event: Event) -> str:
    """Return the event as JSON that can be posted again."""
    fields: dict[str, object] = {
        "id": event.id,
        "timestamp": (_EPOCH + timedelta(microseconds=event.timestamp_us)).isoformat(),
        "event_message": event.event_message,
        "project": event.project,
    }
    if event.timestamp_inferred:
        del fields["timestamp"]
    if event.metadata is not None:
        fields["metadata"] = msgspec.Raw(event.metadata.encode())
    known = msgspec.json.encode({name: value for name, value in fields.items() if value is not None}).decode()
    # Insert the metadata and the extra fields as text, without decoding them. An event may be refused because it is
    # nested too deeply, and then it may be too deep for the decoder as well.
    return f"{known[:-1]},{event.extras[1:]}" if event.extras else known


def refusal_reasons_by_index(parsed: ParsedBody, limit: int) -> Sequence[tuple[int, str]]:
    return [(item.index, item.reason) for item in sorted(parsed.refused_items, key=lambda item: item.index)[:limit]]
