"""Elasticsearch's bulk format: a line with an action, then a line with its document, and so on.

Time, message and `project` become those of the event, `_id` its id, and all other fields metadata. The label of an
event is its index.
"""

from collections.abc import Iterator, Sequence

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import (
    Fields,
    check_lines,
    fields_of,
    items_of,
    scalar_of,
    text_of,
    too_many,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode

_TIME_FIELDS = ("@timestamp", "timestamp")
_MESSAGES = ("message", "event_message", "log")
_MAX_ID_BYTES = 512
_EXCERPT_LENGTH = 60
_UNSUPPORTED = {
    action: f"Events cannot be changed or deleted: [{action}] is not supported. Use [create] or [index]."
    for action in ("update", "delete")
}


class _ActionMetadata(msgspec.Struct):
    """The members of an action line that are used; others (`routing`, `pipeline`, …) are ignored."""

    index: str | None = msgspec.field(default=None, name="_index")
    id: str | int | None = msgspec.field(default=None, name="_id")


class _ActionLine(msgspec.Struct):
    create: _ActionMetadata | None = None
    index: _ActionMetadata | None = None
    update: _ActionMetadata | None = None
    delete: _ActionMetadata | None = None


class Operation(msgspec.Struct, frozen=True, gc=False):
    """An item of the body. `refusal` is the reason if the operation is not supported."""

    action: str
    index: str
    id: str
    refusal: str = ""


class Bulk(LabelledBody):
    """A decoded bulk body, with its operations in order."""

    operations: list[Operation] = msgspec.field(default_factory=list)


_action = msgspec.json.Decoder(_ActionLine)


def read_bulk(default_index: str, body: Body) -> Bulk:
    """Decode a body. `default_index` is that of the URL, for actions without an index."""
    bulk = Bulk(item_bytes=body.item_bytes)
    lines = _lines(body)
    for number, line in lines:
        if len(bulk.operations) >= body.max_items:
            raise too_many(body.max_items)
        operation = _operation(line, number, default_index)
        bulk.operations.append(operation)
        if operation.action == "delete":
            continue
        _, document = next(lines, (0, None))
        if document is None:
            raise BadBody(f"The action on line {number} has no document.")
        if not operation.refusal:
            _add(operation, document, bulk)
    if not bulk.operations:
        raise BadBody("The body has no action.")
    return bulk


def read_documents(body: Body) -> ParsedBody:
    """Decode an array of documents without actions, as the quarantine stores them."""
    parsed = ParsedBody.of(body)
    for index, item in enumerate(items_of(without_unpaired_surrogates(body.text), body.max_items)):
        fields = fields_of(item, index, parsed)
        if fields is not None:
            parsed.add(_event(fields, None), index)
    return parsed


def _lines(body: Body) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    text = body.text
    check_lines(text, 2 * body.max_items)
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace())


def _operation(line: str, number: int, default_index: str) -> Operation:
    try:
        found = _action.decode(line)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"Malformed action/metadata line [{number}]: {_excerpt(line)}.") from problem
    for action in ("create", "index", "update", "delete"):
        target: _ActionMetadata | None = getattr(found, action)
        if target is not None:
            given = "" if target.id is None else str(target.id)
            return Operation(action, target.index or default_index, given, _refusal(action, given))
    raise BadBody(
        f"Malformed action/metadata line [{number}], expected field [create], [delete], [index] or [update]: {_excerpt(line)}."
    )


def _refusal(action: str, document_id: str) -> str:
    if action in _UNSUPPORTED:
        return _UNSUPPORTED[action]
    size = len(document_id.encode())
    if size > _MAX_ID_BYTES:
        return f"The _id is too long: it has {size} bytes, and may have {_MAX_ID_BYTES}."
    return ""


def _add(operation: Operation, document: str, bulk: Bulk) -> None:
    part, place = bulk.part(*([operation.index] if operation.index else ())), len(bulk.operations) - 1
    fields = fields_of(without_unpaired_surrogates(document), place, part)
    if fields is not None:
        part.add(_event(fields, operation.id or None), place)


def _event(fields: Fields, event_id: str | None) -> PostedEvent:
    time = _first(fields, _TIME_FIELDS)
    timestamp = scalar_of(fields.pop(time)) if time else None
    spoken = _first(fields, _MESSAGES)
    message = text_of(fields.pop(spoken)) if spoken else None
    metadata = _encode(fields)
    return PostedEvent(
        id=event_id,
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=text_of(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _first(fields: Fields, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in fields), None)


def _excerpt(line: str) -> str:
    return line if len(line) <= _EXCERPT_LENGTH else f"{line[:_EXCERPT_LENGTH]}…"
