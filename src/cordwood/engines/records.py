"""Convert values of events to BigQuery's records: each object that is not an array element is wrapped in an array."""

import re
from math import inf, isfinite
from typing import Final

import msgspec

from cordwood.model.datatype import Cell, Datatype, Kind

_json_decoder = msgspec.json.Decoder()
_raw_json_decoder = msgspec.json.Decoder(msgspec.Raw)
_json_encoder = msgspec.json.Encoder()


def wrap_objects_as_records(text: str) -> msgspec.Raw:
    """Return the JSON text of a value with its objects wrapped as records.

    The engine's text may contain `Infinity` and `NaN`.
    """
    if "{" not in text and "I" not in text and "N" not in text:
        return msgspec.Raw(text.encode())
    wrapped = _wrap_objects_by_replacement(text)
    try:
        return (
            _raw_json_decoder.decode(wrapped)
            if wrapped
            else msgspec.Raw(_json_encoder.encode(_wrap_value(_json_decoder.decode(text))))
        )
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(_wrap_objects_by_tokens(text).encode())


# JSON cannot represent these floats, so answers have them as the texts that BigQuery prints.
TEXT_BY_SPECIAL_FLOAT: Final = {inf: "Infinity", -inf: "-Infinity"}
# The integers that a FLOAT64 holds exactly are below 2^53. From 1e15 on, floats are written with an exponent.
_MAX_INTEGRAL_EVENT_NUMBER: Final = 1e15


def integer_if_integral(value: float) -> int | float:
    """Return a number from events as the cell of an answer: as an integer if it is integral and not too large."""
    return int(value) if abs(value) < _MAX_INTEGRAL_EVENT_NUMBER and value.is_integer() else value


def read_event_number(text: str) -> Cell:
    """Return the number that an engine has returned as the JSON text of an event's value."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    return integer_if_integral(number) if isfinite(number) else TEXT_BY_SPECIAL_FLOAT.get(number, "NaN")


def mark_event_numbers(datatype: Datatype, declared_type: Datatype | None) -> Datatype:
    """Return the type of an engine's values, with the marks of numbers from events that the declared type has."""
    if declared_type is None or datatype.kind is not declared_type.kind:
        return datatype
    if datatype.kind is Kind.ARRAY and datatype.element is not None:
        return Datatype(Kind.ARRAY, element=mark_event_numbers(datatype.element, declared_type.element))
    if datatype.kind is Kind.STRUCT and len(datatype.fields) == len(declared_type.fields):
        pairs = zip(datatype.fields, declared_type.fields, strict=True)
        fields = ((name, field and mark_event_numbers(field, declared)) for (name, field), (_, declared) in pairs)
        return Datatype(Kind.STRUCT, fields=tuple(fields))
    return declared_type if declared_type.is_event_number else datatype


def convert_struct_or_array_json(text: str, datatype: Datatype) -> msgspec.Raw:
    """Convert the JSON text of a STRUCT or an ARRAY: structs remain objects, objects in VARIANT values are wrapped."""
    try:
        return msgspec.Raw(_json_encoder.encode(_wrap_objects_by_datatype(_json_decoder.decode(text), datatype)))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return wrap_objects_as_records(text)


def _wrap_objects_by_datatype(value: object, datatype: Datatype | None) -> object:
    if datatype is None or datatype.kind is Kind.VARIANT:
        return _wrap_value(value)
    if datatype.is_event_number and isinstance(value, float):
        return integer_if_integral(value)
    if datatype.kind is Kind.STRUCT and isinstance(value, dict):
        # Take the names of the fields from the datatype, by position, because the engine's text may spell them
        # differently.
        return {
            name: _wrap_objects_by_datatype(item, field)
            for (name, field), item in zip(datatype.fields, value.values(), strict=True)
        }
    if datatype.kind is Kind.ARRAY and isinstance(value, list):
        return _wrap_elements(value, datatype.element)
    return value


def _wrap_elements(values: list[object], element: Datatype | None) -> object:
    if element is not None and element.kind is Kind.VARIANT:
        return _wrap_value(values)
    return [_wrap_objects_by_datatype(item, element) for item in values]


def _wrap_value(value: object) -> object:
    if isinstance(value, dict):
        return [_wrap_members(value)]
    if isinstance(value, list):
        return [_wrap_members(element) if isinstance(element, dict) else _wrap_value(element) for element in value]
    return value


def _wrap_members(record: dict[str, object]) -> dict[str, object]:
    return {key: _wrap_value(member) if isinstance(member, dict | list) else member for key, member in record.items()}


# If a quote follows one of these characters, it may begin a string, and so it need not be the end of a key. The empty
# string stands for a brace, at which the text was split.
_CHARACTERS_BEFORE_STRING = frozenset((":", ",", "{", "[", ""))


def _wrap_objects_by_replacement(text: str) -> str | None:
    """Wrap objects by replacing braces in the text; return None for a text in which this could go wrong.

    Replacement is safe if each `{` opens the whole value or follows a key's closing quote and a colon. Then, no `{` is
    inside a string, and none begins an element of an array. There are then as many `}` as `{`, unless a `}` is inside a
    string.
    """
    # Search for one character first, because this is many times as fast as a search for two characters.
    if "\\" in text and '\\"' in text:
        return None
    opened = text.split("{")
    if opened[0] or not all(
        head[-2:] == '":' and head[-3:-2] not in _CHARACTERS_BEFORE_STRING for head in opened[1:-1]
    ):
        return None
    closed = "[{".join(opened).split("}")
    return "}]".join(closed) if len(closed) == len(opened) else None


# An unclosed string matches up to the end, so that none of the escaped quotes in it is tried as the start of a string.
_JSON_TOKEN_PATTERN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]|-?Infinity|NaN', re.DOTALL)


def _wrap_objects_by_tokens(text: str) -> str:
    """Wrap objects token by token, without decoding the text, which may be deeply nested or contain Infinity or NaN."""
    closers: list[str] = []

    def render_token(token: re.Match[str]) -> str:
        symbol = token[0]
        if symbol == "{":
            is_element = bool(closers) and closers[-1] == "]"
            closers.append("}" if is_element else "}]")
            return symbol if is_element else "[{"
        if symbol == "[":
            closers.append("]")
            return symbol
        if symbol in "}]":
            return closers.pop()
        return symbol if symbol.startswith('"') else f'"{symbol}"'

    return _JSON_TOKEN_PATTERN.sub(render_token, text)


def quote_non_finite_numbers(text: str, mark: str) -> str:
    """Return the engine's JSON text with infinite numbers and NaN replaced by strings that begin with `mark`."""
    return _JSON_TOKEN_PATTERN.sub(lambda token: f'"{mark}{token[0]}"' if token[0][0] in "-IN" else token[0], text)
