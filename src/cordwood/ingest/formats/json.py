"""JSON bodies (one event, an array of events, or an object with a `batch` array) and NDJSON bodies.

NDJSON has one event on each line. Lines that cannot be decoded are quarantined, the others stored.
"""

from collections.abc import Iterator

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import (
    add_fields,
    check_lines,
    check_objects,
    fields_of,
    items_of,
    mended,
    read_items,
    too_many,
)
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent

_line = msgspec.json.Decoder(PostedEvent)


def read_ndjson(body: Body) -> ParsedBody:
    parsed = ParsedBody.of(body)
    for index, line in lines_of(body.text, body.most_items):
        _read_line(line, index, parsed)
    return with_something(parsed)


def lines_of(text: str, most: int) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their index from 0; raise TooLarge if there are too many."""
    check_lines(text, most)
    found = 0
    for index, line in enumerate(text.split("\n")):
        if line and not line.isspace():
            found += 1
            if found > most:
                raise too_many(most)
            yield index, line.rstrip("\r")


def with_something(parsed: ParsedBody) -> ParsedBody:
    """Return the reading; raise BadBody if none of its lines could be decoded."""
    if parsed.refused and not parsed.events:
        first = parsed.refused[0]
        raise BadBody(f"No line can be read. Line {first.index + 1}: {first.reason}")
    return parsed


def _read_line(line: str, index: int, parsed: ParsedBody) -> None:
    try:
        parsed.add(_line.decode(line), index)
    except (msgspec.DecodeError, RecursionError):
        fields = fields_of(mended(line), index, parsed)
        if fields is not None:
            add_fields(fields, index, parsed)


# More white space before the first bracket is not expected.
_BLANKS = 64


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch: list[PostedEvent]


_array = msgspec.json.Decoder(list[PostedEvent])
_batch = msgspec.json.Decoder(_Batch)


def read_json(body: Body) -> ParsedBody:
    # Decode ASCII from the body itself: a string would double its memory.
    plain = body.data if body.data.isascii() else body.text
    check_objects(plain, body.most_items)
    try:
        return _read_straight(plain)
    except (msgspec.DecodeError, RecursionError):
        return read_items(items_of(mended(body.text), body.most_items), ParsedBody.of(body))


def _read_straight(text: bytes | str) -> ParsedBody:
    """Decode the common forms without any Python code for single events."""
    if text[:_BLANKS].lstrip()[:1] in {"[", b"["}:
        return ParsedBody(_array.decode(text))
    return ParsedBody(_batch.decode(text).batch)
