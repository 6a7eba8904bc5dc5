"""NDJSON bodies: one event for each line. Lines that cannot be decoded are quarantined, the others stored."""

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
    """Yield the non-empty lines with their index from 0; raise TooLarge if there are too many."""
    check_lines(text, most)
    found = 0
    for index, line in enumerate(text.split("\n")):
        if line and not line.isspace():
            found += 1
            if found > most:
                raise too_many(most)
            yield index, line.rstrip("\r")


def with_something(reading: Reading) -> Reading:
    """Return the reading; raise BadBody if none of its lines could be decoded."""
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
