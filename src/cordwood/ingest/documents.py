"""Takes JSON text apart into its items: an array's elements, a batch's, or the one object, none decoded yet."""

import re
from collections.abc import Iterator

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.posted import Reading

_items = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)

TOO_DEEP = "The item is nested too deeply."


def items_of(text: str) -> list[str]:
    """The items of a document; BadBody, with the place, when it is not JSON."""
    try:
        return [bytes(item).decode() for item in _split(text)]
    except msgspec.DecodeError as problem:
        raise BadBody(f"The body is not JSON: {problem}.") from problem
    except RecursionError:
        return list(_split_by_hand(text))


def _split(text: str) -> list[msgspec.Raw]:
    start = text.lstrip()[:1]
    if start == "[":
        return _items.decode(text)
    if start == "{":
        batch = _fields.decode(text).get("batch")
        if batch is not None and bytes(batch).startswith(b"["):
            return _items.decode(batch)
    return [_any.decode(text)]


def fields_of(item: str, index: int, reading: Reading) -> dict[str, msgspec.Raw] | None:
    """The item's keys; None, and the item set aside, when it is no object."""
    try:
        return _fields.decode(item)
    except msgspec.ValidationError:
        reading.refuse(index, "The item is not an object.", item)
    except msgspec.DecodeError as problem:
        reading.refuse(index, f"The item is not JSON: {problem}.", item)
    except RecursionError:
        reading.refuse(index, TOO_DEEP, item)
    return None


_LONE_SURROGATE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ANY_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def mended(text: str) -> str:
    """JSON text in which halves of surrogate pairs that stand alone are U+FFFD: they are no letters."""
    if not _ANY_SURROGATE.search(text):
        return text
    return _LONE_SURROGATE.sub(lambda match: match[1] or "\\ufffd", text)


_DEPTHS = {"[": 1, "{": 1, "]": -1, "}": -1}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')


def _split_by_hand(text: str) -> Iterator[str]:
    """The elements of an array of which at least one is deeper than the decoder goes."""
    if text.lstrip()[:1] != "[":
        raise BadBody("The body is nested too deeply.")
    depth, start = 0, text.index("[") + 1
    for token in _TOKEN.finditer(text):
        depth += _DEPTHS.get(token[0], 0)
        if token[0] + str(depth) in {",1", "]0"}:
            yield text[start : token.start()].strip()
            start = token.end()
        if depth == 0:
            break
    if depth != 0 or text[start:].strip():
        raise BadBody("The body is not JSON: its array is not closed where the body ends.")
