"""Apply the transforms of a stream to its events, in order, before the events are validated and stored."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cordwood.errors import BodyTooLarge
from cordwood.ingest.event_values import values_at
from cordwood.ingest.items import decode_json_value
from cordwood.ingest.parsed_body import ParsedBody
from cordwood.lql.matching import compile_event_predicate
from cordwood.model.definitions import FieldPath, Stream, Transform, TransformAction
from cordwood.model.event import Event

_encode = msgspec.json.Encoder().encode

# A value with more than `_MAX_COPIED_VALUE_LENGTH` characters is not copied. Of a value that is inserted into a
# message, at most `_MAX_INSERTED_VALUE_LENGTH` characters are inserted.
_MAX_COPIED_VALUE_LENGTH = 64 * 1024
_MAX_INSERTED_VALUE_LENGTH = 8 * 1024
_PLACEHOLDER_PATTERN = re.compile(r"\{([^{}]*)\}")
_SAMPLING_HASH_RANGE = 2**64

Record = dict[str, Any]


class EventDraft:
    """An event that is being transformed. Its fields are decoded once, and `to_event` encodes them again."""

    def __init__(self, event: Event) -> None:
        self.original_event = event
        self.message = event.event_message
        self.project = event.project
        self.top_level_fields: Record = decode_json_value(event.extras) if event.extras else {}
        if event.metadata is not None:
            self.top_level_fields["metadata"] = decode_json_value(event.metadata)
        self.is_changed = False

    def read_values(self, path: Sequence[str]) -> list[object]:
        if tuple(path) == ("event_message",):
            return [self.message]
        if tuple(path) == ("project",):
            return [self.project]
        if tuple(path) == ("id",):
            return [self.original_event.id]
        return list(values_at(self.top_level_fields, path))

    def read_value(self, path: FieldPath) -> object:
        """Return the value at a path, or None if there is none. Unlike `read_values`, return an array as one value."""
        if len(path) == 1 and path[0] in ("event_message", "project", "id"):
            return self.read_values(path)[0]
        record: object = self.top_level_fields
        for step in path:
            record = record.get(step) if isinstance(record, dict) else None
        return record

    def write_value(self, path: FieldPath, value: object) -> bool:
        """Write a value, creating objects on its path.

        Return False without writing if the path leads through a value that is not an object.
        """
        if path in (("event_message",), ("project",)):
            text = value if isinstance(value, str) else _encode(value).decode()
            if path == ("project",):
                self.project = text
            else:
                self.message = text
            self.is_changed = True
            return True
        record = self.top_level_fields
        for step in path[:-1]:
            inner = record.get(step)
            if inner is None:
                inner = record[step] = {}
            if not isinstance(inner, dict):
                return False
            record = inner
        record[path[-1]] = value
        self.is_changed = True
        return True

    def change_field_in_each_record(self, path: FieldPath, change: Callable[[Record, str], None]) -> bool:
        """Change a field in every record that has it, including records in arrays; return whether any record has it."""
        found = [
            one for one in values_at(self.top_level_fields, path[:-1]) if isinstance(one, dict) and path[-1] in one
        ]
        for record in found:
            change(record, path[-1])
        self.is_changed = self.is_changed or bool(found)
        return bool(found)

    def to_event(self) -> Event:
        """Return the event with all changes."""
        if not self.is_changed:
            return self.original_event
        metadata = self.top_level_fields.pop("metadata", None)
        return msgspec.structs.replace(
            self.original_event,
            event_message=self.message,
            project=self.project,
            metadata=None if metadata is None else _encode(metadata).decode(),
            extras=_encode(self.top_level_fields).decode() if self.top_level_fields else None,
        )


class StreamTransforms:
    """The transforms of all streams, in compiled form.

    The transforms of a stream are compiled at its first event, and again after every change of them. Transforms may add
    at most `max_added_bytes` to the events of one body. This limit is needed because an entry of an enrichment file may
    be large, and may be added to many small events.
    """

    def __init__(self, hash_key: bytes, max_added_bytes: int) -> None:
        self._hash_key = hash_key
        self._max_added_bytes = max_added_bytes
        # The key is the name of a stream, so the number of entries is at most that of the streams in the catalog.
        self._compiled_transforms_by_stream: dict[str, tuple[Stream, CompiledTransforms]] = {}

    def apply(
        self, stream: Stream, events: list[Event], parsed: ParsedBody
    ) -> tuple[list[Event], Mapping[tuple[str, str], int]]:
        """Return the remaining events, and how often each transform had each outcome (such as changed or dropped).

        In `parsed.item_indexes`, only the positions of the remaining events are kept.
        """
        if not stream.transforms:
            return events, {}
        known = self._compiled_transforms_by_stream.get(stream.name)
        if known is None or known[0].transforms is not stream.transforms:
            known = self._compiled_transforms_by_stream[stream.name] = (
                stream,
                CompiledTransforms(stream, self._hash_key),
            )
        counts: Counter[tuple[str, str]] = Counter()
        changed = []
        added_bytes = 0
        for event in events:
            changed.append(known[1].apply(event, counts))
            added_bytes += _added_characters(event, changed[-1])
            if added_bytes > self._max_added_bytes:
                raise self._events_too_large_fault(stream)
        parsed.item_indexes = [parsed.item_index(place) for place, event in enumerate(changed) if event is not None]
        return [event for event in changed if event is not None], counts

    def _events_too_large_fault(self, stream: Stream) -> BodyTooLarge:
        mebibytes = self._max_added_bytes / 2**20
        return BodyTooLarge(
            f"The transforms of the stream {stream.name} add more than {mebibytes:.3g} MiB to the events of one body.",
            hint="Send fewer events at once, or shorten what enrich, copy and message add.",
        )


def _added_characters(before: Event, changed: Event | None) -> int:
    """Return by how many characters an event has grown.

    An event that has shrunk counts as 0, so that it does not offset the growth of other events.
    """
    return 0 if changed is None or changed is before else max(0, _event_length(changed) - _event_length(before))


def _event_length(event: Event) -> int:
    return sum(len(text or "") for text in (event.event_message, event.project, event.metadata, event.extras))


# A compiled transform. It returns whether it changed the event, or None if the event is to be dropped.
TransformStep = Callable[[EventDraft], bool | None]


class CompiledTransforms:
    """The compiled transforms of one stream. `hash_key` is the secret with which this installation hashes values."""

    def __init__(self, stream: Stream, hash_key: bytes) -> None:
        self._names_predicates_and_steps = [
            (
                f"{number} {one.action}",
                compile_event_predicate(one.lql_filter) if one.lql_filter else None,
                _compile_step(one, hash_key),
            )
            for number, one in enumerate(stream.transforms, 1)
        ]

    def apply(self, event: Event, counts: Counter[tuple[str, str]]) -> Event | None:
        """Return the transformed event, or None if it is dropped; count the outcome of each transform in `counts`."""
        try:
            draft = EventDraft(event)
        except (msgspec.DecodeError, RecursionError):
            # The event is nested too deeply to be decoded or stored. The validation will quarantine it for this reason.
            counts["", "unreadable"] += 1
            return event
        for name, matches, step in self._names_predicates_and_steps:
            if matches is not None and not matches(draft.read_values):
                continue
            changed = step(draft)
            if changed is None:
                counts[name, "dropped"] += 1
                return None
            counts[name, "changed" if changed else "unchanged"] += 1
        return draft.to_event()


def _compile_step(transform: Transform, hash_key: bytes) -> TransformStep:
    match transform.action:
        case TransformAction.DROP_EVENT:
            return lambda _: None
        case TransformAction.SAMPLE:
            return lambda draft: (
                False if _sampling_fraction(draft.original_event.id) < transform.sampled_fraction else None
            )
        case TransformAction.REMOVE_FIELDS:
            return lambda draft: sum(_remove_field(draft, path) for path in transform.removed_or_hashed_fields) > 0
        case TransformAction.HASH:
            return lambda draft: (
                sum(_hash_field(draft, path, hash_key) for path in transform.removed_or_hashed_fields) > 0
            )
        case TransformAction.COPY | TransformAction.RENAME:
            is_move = transform.action is TransformAction.RENAME
            return lambda draft: (
                sum(_copy_field(draft, *move, is_move=is_move) for move in transform.source_and_target_fields) > 0
            )
        case TransformAction.SET_MESSAGE:
            return lambda draft: draft.write_value(
                ("event_message",), _fill_message_template(transform.message_template, draft)
            )
        case TransformAction.ENRICH:
            return lambda draft: _enrich_event(draft, transform)


def _sampling_fraction(event_id: str) -> float:
    """Return a number from 0 to 1 that depends only on the event's id, so that a retry is sampled in the same way."""
    return (
        int.from_bytes(hashlib.blake2b(event_id.encode("utf-8", "replace"), digest_size=8).digest())
        / _SAMPLING_HASH_RANGE
    )


def _remove_field(draft: EventDraft, path: FieldPath) -> bool:
    if path in (("event_message",), ("project",)):
        was = draft.read_values(path)[0]
        draft.message, draft.project = (None, draft.project) if path == ("event_message",) else (draft.message, None)
        draft.is_changed = draft.is_changed or was is not None
        return was is not None
    return draft.change_field_in_each_record(path, lambda record, name: record.pop(name))


def _hash_field(draft: EventDraft, path: FieldPath, key: bytes) -> bool:
    if path in (("event_message",), ("project",)):
        value = draft.read_value(path)
        return value is not None and draft.write_value(path, _hash_value(value, key))

    def replace_with_hash(record: Record, name: str) -> None:
        if record[name] is not None:
            record[name] = _hash_value(record[name], key)

    return draft.change_field_in_each_record(path, replace_with_hash)


def _hash_value(value: object, key: bytes) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return hmac.new(key, text.encode("utf-8", "replace"), "sha256").hexdigest()[:32]


def _copy_field(draft: EventDraft, source: FieldPath, target: FieldPath, *, is_move: bool) -> bool:
    value = draft.read_value(source)
    if value is None:
        return False
    # A value is copied by encoding and decoding it, so that the copy does not change with its source. The size of a
    # copy is limited, because repeated copies could otherwise grow without limit.
    text = _encode(value)
    if not is_move and len(text) > _MAX_COPIED_VALUE_LENGTH:
        return False
    if not draft.write_value(target, value if is_move else msgspec.json.decode(text)):
        return False
    return _remove_field(draft, source) if is_move else True


def _fill_message_template(template: str, draft: EventDraft) -> str:
    return _PLACEHOLDER_PATTERN.sub(
        lambda placeholder: _to_inserted_text(draft.read_value(tuple(placeholder[1].split(".")))), template
    )


def _to_inserted_text(value: object) -> str:
    if value is None:
        return ""
    return (value if isinstance(value, str) else _encode(value).decode())[:_MAX_INSERTED_VALUE_LENGTH]


def _enrich_event(draft: EventDraft, transform: Transform) -> bool:
    ((source, target),) = transform.source_and_target_fields
    key = draft.read_value(source)
    if key is None:
        return False
    entry = transform.target_json_by_source_value.get(key if isinstance(key, str) else _encode(key).decode())
    return entry is not None and draft.write_value(target, msgspec.json.decode(entry))
