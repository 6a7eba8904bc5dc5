"""Elasticsearch's bulk format, in which a line with an action is followed by a line with its document.

The time and the message of a document become those of the event. All other fields become the event's metadata;
`project` is also the project of the event. The `_id` of the action becomes the id of the event. The label of an event,
by which its stream is chosen, is the name of its index.
"""

from collections.abc import Iterator, Sequence

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import (
    RawFields,
    check_line_count,
    decode_fields,
    raw_to_scalar,
    raw_to_text,
    split_items,
    too_many_items_fault,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode

_TIME_FIELDS = ("@timestamp", "timestamp")
_MESSAGE_FIELDS = ("message", "event_message", "log")
_MAX_ID_BYTES = 512
_ACTION_EXCERPT_LENGTH = 60
_REFUSALS_BY_UNSUPPORTED_ACTION = {
    action: f"Events cannot be changed or deleted: [{action}] is not supported. Use [create] or [index]."
    for action in ("update", "delete")
}


class _ActionMetadata(msgspec.Struct):
    """The members of an action line that are read. All others, such as `routing` and `pipeline`, are ignored."""

    index: str | None = msgspec.field(default=None, name="_index")
    id: str | int | None = msgspec.field(default=None, name="_id")


class _ActionLine(msgspec.Struct):
    create: _ActionMetadata | None = None
    index: _ActionMetadata | None = None
    update: _ActionMetadata | None = None
    delete: _ActionMetadata | None = None


class BulkOperation(msgspec.Struct, frozen=True, gc=False):
    """One operation of a bulk body. `refusal_reason` says why the operation is refused, and is empty otherwise."""

    action: str
    index: str
    id: str
    refusal_reason: str = ""


class BulkBody(LabelledBody):
    """A decoded bulk body, with its operations in order."""

    operations: list[BulkOperation] = msgspec.field(default_factory=list)


_action_decoder = msgspec.json.Decoder(_ActionLine)


def read_bulk(default_index: str, body: Body) -> BulkBody:
    """Decode a bulk body. `default_index` comes from the URL, and applies to actions that name no index."""
    bulk = BulkBody(max_item_bytes=body.max_item_bytes)
    lines = _numbered_lines(body)
    for number, line in lines:
        if len(bulk.operations) >= body.max_items:
            raise too_many_items_fault(body.max_items)
        operation = _parse_operation(line, number, default_index)
        bulk.operations.append(operation)
        if operation.action == "delete":
            continue
        _, document = next(lines, (0, None))
        if document is None:
            raise BadBody(f"The action on line {number} has no document.")
        if not operation.refusal_reason:
            _add_document(operation, document, bulk)
    if not bulk.operations:
        raise BadBody("The body has no action.")
    return bulk


def read_documents(body: Body) -> ParsedBody:
    """Decode an array of documents without actions, as the quarantine stores them."""
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(without_unpaired_surrogates(body.text), body.max_items)):
        fields = decode_fields(item, index, parsed)
        if fields is not None:
            parsed.add_event(_make_event(fields, None), index)
    return parsed


def _numbered_lines(body: Body) -> Iterator[tuple[int, str]]:
    """Yield the lines of a body that are not blank, with their line numbers from 1."""
    text = body.text
    check_line_count(text, 2 * body.max_items)
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace())


def _parse_operation(line: str, number: int, default_index: str) -> BulkOperation:
    try:
        found = _action_decoder.decode(line)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"Malformed action/metadata line [{number}]: {_excerpt_of_action_line(line)}.") from problem
    for action in ("create", "index", "update", "delete"):
        target: _ActionMetadata | None = getattr(found, action)
        if target is not None:
            given = "" if target.id is None else str(target.id)
            return BulkOperation(action, target.index or default_index, given, _refusal_reason(action, given))
    raise BadBody(
        f"Malformed action/metadata line [{number}], expected field [create], [delete], [index] or [update]: {_excerpt_of_action_line(line)}."
    )


def _refusal_reason(action: str, document_id: str) -> str:
    if action in _REFUSALS_BY_UNSUPPORTED_ACTION:
        return _REFUSALS_BY_UNSUPPORTED_ACTION[action]
    size = len(document_id.encode())
    if size > _MAX_ID_BYTES:
        return f"The _id is too long: it has {size} bytes, and may have {_MAX_ID_BYTES}."
    return ""


def _add_document(operation: BulkOperation, document: str, bulk: BulkBody) -> None:
    part, place = bulk.part_for_labels(*([operation.index] if operation.index else ())), len(bulk.operations) - 1
    fields = decode_fields(without_unpaired_surrogates(document), place, part)
    if fields is not None:
        part.add_event(_make_event(fields, operation.id or None), place)


def _make_event(fields: RawFields, event_id: str | None) -> PostedEvent:
    time = _first_present_field_name(fields, _TIME_FIELDS)
    timestamp = raw_to_scalar(fields.pop(time)) if time else None
    spoken = _first_present_field_name(fields, _MESSAGE_FIELDS)
    message = raw_to_text(fields.pop(spoken)) if spoken else None
    metadata = _encode(fields)
    return PostedEvent(
        id=event_id,
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=raw_to_text(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _first_present_field_name(fields: RawFields, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in fields), None)


def _excerpt_of_action_line(line: str) -> str:
    return line if len(line) <= _ACTION_EXCERPT_LENGTH else f"{line[:_ACTION_EXCERPT_LENGTH]}…"
