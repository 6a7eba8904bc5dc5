"""NDJSON: an event a line; a line that cannot be read is set aside and the rest stored."""

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import read_item
from cordwood.ingest.posted import Posted, Reading, SetAside

_line = msgspec.json.Decoder(Posted)
_any = msgspec.json.Decoder(msgspec.Raw)


def read_ndjson(text: str) -> Reading:
    reading = Reading([], indexes=[])
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line and not line.isspace():
            _read_line(line, index, reading)
    if reading.set_aside and not reading.events:
        first = reading.set_aside[0]
        raise BadBody(f"No line could be read; line {first.index + 1}: {first.reason}")
    return reading


def _read_line(line: str, index: int, reading: Reading) -> None:
    try:
        event = _line.decode(line)
    except msgspec.ValidationError:
        read_item(_any.decode(line), index, reading)
        return
    except (msgspec.DecodeError, RecursionError) as problem:
        reading.set_aside.append(SetAside(index, f"The line is not JSON: {problem}.", line))
        return
    reading.events.append(event)
    if reading.indexes is not None:
        reading.indexes.append(index)
