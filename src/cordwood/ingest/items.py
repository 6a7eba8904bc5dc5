"""The items of a body: limit their number, split documents and lines without decoding them, and read the keys of items.

Six kilobytes of gzip can contain three million items, each of which takes a hundred bytes once it is decoded. The
number of separators is a cheap upper bound, which takes a millisecond; items are counted exactly only beyond it.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cordwood.errors import BadBody, TooLarge
from cordwood.ingest.parsed_body import ParsedBody, PostedEvent
from cordwood.model.json_checks import describe_json_error

# Splitting an item costs a tenth of decoding it, so up to this many times the limit may be split before items are
# counted exactly.
_CHEAP_ITEMS: Final = 8
# The maximum number of JSON values per item, for a document of any structure.
_VALUES_PER_ITEM: Final = 64
# The nesting depth up to which the pattern can skip an item.
_MAX_LEVELS: Final = 32

_STRING_PATTERN: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'


def _one_item(levels: int) -> str:
    """Return a possessive pattern, which never backtracks, for one item up to the comma or bracket after it."""
    return rf"(?:[^\"\[\]{{}},]++|{_STRING_PATTERN}|[\[{{]{_nested(levels)}*+[\]}}])*+"


def _nested(levels: int) -> str:
    """Return a possessive pattern for the content of brackets."""
    nested = rf"(?:[^\"\[\]{{}}]++|{_STRING_PATTERN})"
    for _ in range(levels - 1):
        nested = rf"(?:[^\"\[\]{{}}]++|{_STRING_PATTERN}|[\[{{]{nested}*+[\]}}])"
    return nested


_ITEM_PATTERN: Final = re.compile(_one_item(_MAX_LEVELS).encode(), re.DOTALL)
_OBJECT: Final = re.compile(rf"\{{{_nested(_MAX_LEVELS)}*+\}}", re.DOTALL)
_WHITESPACE: Final = re.compile(r"[ \t\r\n]*+")


class _RawBatch(msgspec.Struct, gc=False):
    batch: msgspec.Raw


_raw_batch = msgspec.json.Decoder(_RawBatch)


def check_objects(document: bytes | str, limit: int) -> None:
    """Raise TooLarge for a JSON array, or the array `batch` of an object, of more objects than the limit."""
    if _count(document, "{") > limit:
        _check_exactly(document, limit)


def check_items(document: bytes | str, limit: int) -> None:
    """Raise TooLarge for an array, or the array `batch` of an object, of far more items than the limit."""
    if _count(document, ",") > limit * _CHEAP_ITEMS:
        _check_exactly(document, limit)


def check_lines(text: str, limit: int) -> None:
    """Raise TooLarge for a text of far more lines than the limit, counting empty lines."""
    if _count(text, "\n") > limit * _CHEAP_ITEMS:
        raise too_many(limit)


def check_values(document: bytes | str, limit: int) -> None:
    """Raise TooLarge for a JSON document of more values than `limit` items may have."""
    if _count(document, ",") > limit * _VALUES_PER_ITEM:
        raise too_many(limit)


def too_many(limit: int) -> TooLarge:
    return TooLarge(f"The body holds more than {limit} items.", hint="Send fewer at once.")


def _count(text: bytes | str, mark: str) -> int:
    return text.count(mark) if isinstance(text, str) else text.count(mark.encode())


def _check_exactly(document: bytes | str, limit: int) -> None:
    data = document.encode() if isinstance(document, str) else document
    start = data[:64].lstrip()[:1]
    if start == b"{":
        try:
            data = bytes(_raw_batch.decode(data).batch)
        except (msgspec.DecodeError, RecursionError):
            return
        start = data[:1]
    if start == b"[":
        _count_array(data, data.index(b"[") + 1, limit)


def _count_array(data: bytes, position: int, limit: int) -> None:
    """Count items one by one, up to the first one beyond the limit."""
    for _ in range(limit):
        item = _ITEM_PATTERN.match(data, position)
        position = item.end() if item else position
        after = data[position : position + 1]
        if after in (b"]", b""):
            return
        if after != b",":
            raise TooLarge(
                f"The body has an item of more than {_MAX_LEVELS} levels, and too many others.",
                hint="Send less at once.",
            )
        position += 1
    raise too_many(limit)


class _PossibleBatch(msgspec.Struct, gc=False):
    """An object of which only the member `batch` is decoded."""

    batch: msgspec.Raw = msgspec.Raw(b"")


_items = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_maybe_batch = msgspec.json.Decoder(_PossibleBatch)
_any = msgspec.json.Decoder(msgspec.Raw)

TOO_DEEP = "The item is nested too deeply."


def _number(text: str) -> object:
    return float(text) if math.isfinite(float(text)) else text


# Decodes JSON to plain values; a number beyond the range of a double becomes a string of its digits.
decoded_values = msgspec.json.Decoder(float_hook=_number).decode


def items_of(text: str, limit: int) -> list[str]:
    """Return the items of a document; raise BadBody if it is not JSON, TooLarge if it has too many items."""
    check_items(text, limit)
    try:
        items = _split(text)
        if len(items) > limit:
            raise too_many(limit)
        return [bytes(item).decode() for item in items]
    except msgspec.DecodeError as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, text.encode())}.") from problem
    except RecursionError:
        return _split_by_tokens(text)


def _split(text: str) -> list[msgspec.Raw]:
    start = text.lstrip()[:1]
    if start == "[":
        return _items.decode(text)
    if start == "{":
        batch = _maybe_batch.decode(text).batch
        if bytes(batch).startswith(b"["):
            return _items.decode(batch)
    return [_any.decode(text)]


def fields_of(item: str, index: int, parsed: ParsedBody) -> dict[str, msgspec.Raw] | None:
    """Return the members of an item, or None after quarantining it: it is not an object, or it is too large."""
    if len(item) > parsed.item_bytes:
        parsed.refuse(index, f"The item is larger than {parsed.item_bytes} bytes.", item)
        return None
    try:
        return _fields.decode(item)
    except msgspec.ValidationError:
        parsed.refuse(index, "The item is not an object.", item)
    except msgspec.DecodeError as problem:
        parsed.refuse(index, f"The item is not JSON: {describe_json_error(problem, item.encode())}.", item)
    except RecursionError:
        parsed.refuse(index, TOO_DEEP, item)
    return None


_LONE_SURROGATE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ANY_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def without_unpaired_surrogates(text: str) -> str:
    """Replace unpaired surrogates in JSON text by U+FFFD, because they cannot be encoded as UTF-8."""
    if not _ANY_SURROGATE.search(text):
        return text
    return _LONE_SURROGATE.sub(lambda match: match[1] or "\\ufffd", text)


_DEPTH_CHANGES = {"[": 1, "{": 1, "]": -1, "}": -1}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')
# The maximum number of characters that are split in Python: tokenizing five million brackets takes about one second.
_MAX_TOKENIZED = 8 * 2**20


def _split_by_tokens(text: str) -> list[str]:
    """Split a document that is nested deeper than the decoder's recursion limit."""
    if len(text) > _MAX_TOKENIZED:
        raise BadBody(
            "The body is nested too deeply.", hint="Send fewer items at once, and only that item is quarantined."
        )
    end = next((token.end() for token, depth in _tokens(text) if depth <= 0), None)
    if end is None or text[end:].strip():
        raise BadBody("The body is not JSON: its brackets are not closed.")
    start = text.index("[") if text.lstrip()[:1] == "[" else _batch_start(text)
    return [text] if start is None else list(_elements(text, start))


def _tokens(text: str, start: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Yield strings, commas and brackets with the depth after each, until the first bracket is closed."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += _DEPTH_CHANGES.get(token[0], 0)
        yield token, depth
        if depth <= 0:
            return


def objects_of(text: str, limit: int) -> Iterator[str | None]:
    """Yield concatenated JSON objects; at the first thing that is not an object, yield None and stop.

    The content between the brackets of an object is not validated. Raise TooLarge for too many objects.
    """
    position = found = 0
    left_by_hand = _MAX_TOKENIZED
    while (start := _skip_whitespace(text, position)) < len(text):
        found += 1
        if found > limit:
            raise too_many(limit)
        match = _OBJECT.match(text, start)
        end = match.end() if match else _end_by_tokens(text, start, left_by_hand)
        if end is None:
            yield None
            return
        if match is None:
            left_by_hand -= end - start
        yield text[start:end]
        position = end


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position


def _end_by_tokens(text: str, start: int, limit: int) -> int | None:
    """Return the end of an object nested too deeply for the pattern; None if it has more than `limit` characters."""
    if text[start] != "{":
        return None
    depth = 0
    for token in _TOKEN.finditer(text, start, start + limit):
        depth += _DEPTH_CHANGES.get(token[0], 0)
        if depth <= 0:
            return token.end()
    return None


def _batch_start(text: str) -> int | None:
    """Return the start of the array under the key `batch`, or None if there is none."""
    key_end = None
    for token, depth in _tokens(text):
        if key_end is not None and token[0] == "[" and text[key_end : token.start()].strip() == ":":
            return token.start()
        key_end = token.end() if depth == 1 and token[0] == '"batch"' else None
    return None


def _elements(text: str, start: int) -> Iterator[str]:
    """Yield the elements of the array that begins at `start`."""
    start += 1
    for token, depth in _tokens(text, start - 1):
        if token[0] + str(depth) in {",1", "]0"}:
            yield text[start : token.start()].strip()
            start = token.end()


_value = msgspec.json.Decoder()
_EVENT_FIELDS = ("id", "timestamp", "event_message", "message", "project", "metadata")

Fields = dict[str, msgspec.Raw]


def read_items(items: Sequence[str], parsed: ParsedBody) -> ParsedBody:
    """Add items to an empty decoded body."""
    for index, item in enumerate(items):
        fields = fields_of(item, index, parsed)
        if fields is not None:
            add_fields(fields, index, parsed)
    return parsed


def add_fields(fields: Fields, index: int, parsed: ParsedBody) -> None:
    known = {name: fields.pop(name) for name in _EVENT_FIELDS if name in fields}
    posted = PostedEvent(
        id=text_of(known.get("id")),
        timestamp=scalar_of(known.get("timestamp")),
        event_message=text_of(known.get("event_message")),
        message=text_of(known.get("message")),
        project=text_of(known.get("project")),
        metadata=known.get("metadata", msgspec.Raw(b"")),
    )
    parsed.add(posted, index, fields)


def text_of(raw: msgspec.Raw | None) -> str | None:
    """Return a string unchanged, any other value as JSON text, and None for null."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text.startswith('"'):
        return str(_value.decode(raw))
    return None if text == "null" else text


def scalar_of(raw: msgspec.Raw | None) -> str | int | float | None:
    if raw is None:
        return None
    try:
        value = _value.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw).decode()
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
