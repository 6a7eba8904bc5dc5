"""Render an event's value as BigQuery's records: every object except an array's element becomes an array of one."""

import re

import msgspec

from cordwood.model.datatype import Datatype, Kind

_decoder = msgspec.json.Decoder()
_checker = msgspec.json.Decoder(msgspec.Raw)
_encoder = msgspec.json.Encoder()


def as_records(text: str) -> msgspec.Raw:
    """Wrap the objects of a JSON text as the engine prints it, which may contain infinite numbers and NaN."""
    if "{" not in text and "I" not in text and "N" not in text:
        return msgspec.Raw(text.encode())
    fast = _wrapped_at_once(text)
    try:
        return _checker.decode(fast) if fast else msgspec.Raw(_encoder.encode(_wrapped(_decoder.decode(text))))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(_wrapped_text(text).encode())


def as_structured(text: str, datatype: Datatype) -> msgspec.Raw:
    """Render a STRUCT or an ARRAY: keep its own objects, and wrap those of events' values inside it."""
    try:
        return msgspec.Raw(_encoder.encode(_structured(_decoder.decode(text), datatype)))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return as_records(text)


def _structured(value: object, datatype: Datatype | None) -> object:
    if datatype is None or datatype.kind is Kind.VARIANT:
        return _wrapped(value)
    if datatype.kind is Kind.STRUCT and isinstance(value, dict):
        # By position, because an engine may spell a field's name differently.
        return {
            name: _structured(one, field) for (name, field), one in zip(datatype.fields, value.values(), strict=True)
        }
    if datatype.kind is Kind.ARRAY and isinstance(value, list):
        return _structured_elements(value, datatype.element)
    return value


def _structured_elements(values: list[object], element: Datatype | None) -> object:
    if element is not None and element.kind is Kind.VARIANT:
        return _wrapped(values)
    return [_structured(one, element) for one in values]


def _wrapped(value: object) -> object:
    if isinstance(value, dict):
        return [_opened(value)]
    if isinstance(value, list):
        return [_opened(one) if isinstance(one, dict) else _wrapped(one) for one in value]
    return value


def _opened(record: dict[str, object]) -> dict[str, object]:
    return {key: _wrapped(one) if isinstance(one, dict | list) else one for key, one in record.items()}


# What can precede a quote that begins a text; the empty string stands for a brace right before the quote.
_BEFORE_TEXT = frozenset((":", ",", "{", "[", ""))


def _wrapped_at_once(text: str) -> str | None:
    """Wrap by text replacement if every `{` opens the whole value or the object of a key; else return None.

    The object of a key begins after the key's closing quote and a colon. If each `{` does, none is inside a text and
    none begins an array's element; the number of `}` is then equal unless one is inside a text.
    """
    # Searching for one character is many times as fast as searching for two.
    if "\\" in text and '\\"' in text:
        return None
    opened = text.split("{")
    if opened[0] or not all(head[-2:] == '":' and head[-3:-2] not in _BEFORE_TEXT for head in opened[1:-1]):
        return None
    closed = "[{".join(opened).split("}")
    return "}]".join(closed) if len(closed) == len(opened) else None


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|-?Infinity|NaN')


def _wrapped_text(text: str) -> str:
    """Wrap by tokens, without decoding: for a text that is nested too deeply, or that contains Infinity or NaN."""
    closers: list[str] = []

    def told(token: re.Match[str]) -> str:
        mark = token[0]
        if mark == "{":
            is_element = bool(closers) and closers[-1] == "]"
            closers.append("}" if is_element else "}]")
            return mark if is_element else "[{"
        if mark == "[":
            closers.append("]")
            return mark
        if mark in "}]":
            return closers.pop()
        return mark if mark.startswith('"') else f'"{mark}"'

    return _TOKEN.sub(told, text)
