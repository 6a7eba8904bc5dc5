"""Split a JSON document into its items without decoding them: an array, a `batch` array, or one object."""

import math
import re
from collections.abc import Iterator

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.item_count import check_items, too_many
from cordwood.ingest.posted import Reading
from cordwood.model.broken_json import why_no_json


class _MayBeBatch(msgspec.Struct, gc=False):
    """An object of which only the member `batch` is decoded."""

    batch: msgspec.Raw = msgspec.Raw(b"")


_items = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_batch = msgspec.json.Decoder(_MayBeBatch)
_any = msgspec.json.Decoder(msgspec.Raw)

TOO_DEEP = "The item is nested too deeply."


def _number(text: str) -> object:
    return float(text) if math.isfinite(float(text)) else text


# Decodes JSON to plain values; a number beyond the range of a double becomes a string of its digits.
decoded_values = msgspec.json.Decoder(float_hook=_number).decode


def items_of(text: str, most: int) -> list[str]:
    """Return the items of a document; raise BadBody if it is not JSON, TooLarge if it has too many items."""
    check_items(text, most)
    try:
        items = _split(text)
        if len(items) > most:
            raise too_many(most)
        return [bytes(item).decode() for item in items]
    except msgspec.DecodeError as problem:
        raise BadBody(f"The body is not JSON: {why_no_json(problem, text.encode())}.") from problem
    except RecursionError:
        return _split_by_hand(text)


def _split(text: str) -> list[msgspec.Raw]:
    start = text.lstrip()[:1]
    if start == "[":
        return _items.decode(text)
    if start == "{":
        batch = _batch.decode(text).batch
        if bytes(batch).startswith(b"["):
            return _items.decode(batch)
    return [_any.decode(text)]


def fields_of(item: str, index: int, reading: Reading) -> dict[str, msgspec.Raw] | None:
    """Return the item's keys; quarantine the item and return None if it is not an object or is too large."""
    if len(item) > reading.item_bytes:
        reading.refuse(index, f"The item is larger than {reading.item_bytes} bytes.", item)
        return None
    try:
        return _fields.decode(item)
    except msgspec.ValidationError:
        reading.refuse(index, "The item is not an object.", item)
    except msgspec.DecodeError as problem:
        reading.refuse(index, f"The item is not JSON: {why_no_json(problem, item.encode())}.", item)
    except RecursionError:
        reading.refuse(index, TOO_DEEP, item)
    return None


_LONE_SURROGATE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ANY_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def mended(text: str) -> str:
    """Replace lone surrogates in JSON text by U+FFFD, because they cannot be encoded as UTF-8."""
    if not _ANY_SURROGATE.search(text):
        return text
    return _LONE_SURROGATE.sub(lambda match: match[1] or "\\ufffd", text)


_DEPTHS = {"[": 1, "{": 1, "]": -1, "}": -1}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')
# Tokenizing five million brackets takes about one second.
_MOST_BY_HAND = 8 * 2**20


def _split_by_hand(text: str) -> list[str]:
    """Split a document that is nested deeper than the decoder's recursion limit."""
    if len(text) > _MOST_BY_HAND:
        raise BadBody("The body is nested too deeply.", hint="Send less at once, and only the item is set aside.")
    end = next((token.end() for token, depth in _tokens(text) if depth <= 0), None)
    if end is None or text[end:].strip():
        raise BadBody("The body is not JSON: its brackets are not closed where it ends.")
    start = text.index("[") if text.lstrip()[:1] == "[" else _start_of_batch(text)
    return [text] if start is None else list(_elements(text, start))


def _tokens(text: str, start: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Yield strings, commas and brackets with the depth after each, until the first bracket is closed."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += _DEPTHS.get(token[0], 0)
        yield token, depth
        if depth <= 0:
            return


def _start_of_batch(text: str) -> int | None:
    """Return where the array under the key `batch` begins; None if there is none."""
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
