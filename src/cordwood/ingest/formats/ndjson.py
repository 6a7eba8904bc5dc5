"""NDJSON: an event a line; a line that cannot be read is set aside and the rest stored."""

from collections.abc import Iterator

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.documents import fields_of, mended
from cordwood.ingest.item_count import check_lines, too_many
from cordwood.ingest.items import add_fields
from cordwood.ingest.posted import Body, Posted, Reading

_line = msgspec.json.Decoder(Posted)


def read_ndjson(body: Body) -> Reading:
    reading = Reading.of(body)
    for index, line in lines_of(body.text, body.most_items):
        _read_line(line, index, reading)
    return with_something(reading)


def lines_of(text: str, most: int) -> Iterator[tuple[int, str]]:
    """Lines that hold something, by their number from 0; TooLarge when they are too many."""
    check_lines(text, most)
    found = 0
    for index, line in enumerate(text.split("\n")):
        if line and not line.isspace():
            found += 1
            if found > most:
                raise too_many(most)
            yield index, line.rstrip("\r")


def with_something(reading: Reading) -> Reading:
    """A reading in which every line was bad is a bad body."""
    if reading.set_aside and not reading.events:
        first = reading.set_aside[0]
        raise BadBody(f"No line can be read. Line {first.index + 1}: {first.reason}")
    return reading


def _read_line(line: str, index: int, reading: Reading) -> None:
    try:
        reading.add(_line.decode(line), index)
    except (msgspec.DecodeError, RecursionError):
        fields = fields_of(mended(line), index, reading)
        if fields is not None:
            add_fields(fields, index, reading)
