"""Read events with type casts: `{"body": {…}, "typecasts": [{"path": […], "from": "string", "to": "float"}]}`."""

import math
from typing import Any

import msgspec

from cordwood.ingest.items import TOO_DEEP, add_fields, decoded_values, fields_of, items_of, mended
from cordwood.ingest.parsed_body import Body, ParsedBody

_encode = msgspec.json.Encoder().encode
_MOST_CASTS = 1000
_SHOWN = 200


def read_typecasts(body: Body) -> ParsedBody:
    """Read a batch; quarantine an item whose casts fail."""
    parsed = ParsedBody.of(body)
    for index, item in enumerate(items_of(mended(body.text), body.most_items)):
        fields = fields_of(item, index, parsed)
        if fields is None:
            continue
        if {"body", "typecasts"} <= fields.keys():
            try:
                fields = fields_of(_cast(fields["body"], fields["typecasts"]), index, parsed)
            except ValueError as problem:
                parsed.refuse(index, str(problem), item)
                continue
        if fields is not None:
            add_fields(fields, index, parsed)
    return parsed


def _cast(body: msgspec.Raw, typecasts: msgspec.Raw) -> str:
    """Return the event as JSON with its casts applied; ValueError where one fails."""
    try:
        event, directions = decoded_values(body), decoded_values(typecasts)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(TOO_DEEP) from None
    if not isinstance(event, dict) or not isinstance(directions, list) or len(directions) > _MOST_CASTS:
        raise ValueError(f"body is not an object, or typecasts not a list of at most {_MOST_CASTS}.")
    for cast in directions:
        path = cast.get("path") if isinstance(cast, dict) else None
        if isinstance(path, list) and path and (cast.get("from"), cast.get("to")) == ("string", "float"):
            _cast_at(event, path)
    return _encode(event).decode()


def _cast_at(event: dict[str, Any], path: list[object]) -> None:
    """Convert a text to a number in every record along the path; a missing path changes nothing."""
    *outer, last = (str(step) for step in path)
    records: list[Any] = [event]
    for step in outer:
        found = [record.get(step) for record in records if isinstance(record, dict)]
        records = [one for value in found for one in (value if isinstance(value, list) else [value])]
    for record in records:
        value = record.get(last) if isinstance(record, dict) else None
        if isinstance(value, str):
            record[last] = _number(value, ".".join((*outer, last))[:_SHOWN])


def _number(text: str, path: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"The text at {path} is not a number.")
    return number
