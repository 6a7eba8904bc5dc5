"""Split JSON bodies and files into items without decoding their values, within limits, and read the items' members.

Items are counted before they are decoded: six kilobytes of gzip can contain three million items, each of which takes a
hundred bytes of memory when decoded. The number of separators is an upper bound of the number of items, and counting
the separators takes only a millisecond. Items are counted exactly only if this bound exceeds a limit. Files are split
as they are read, in bounded memory.
"""

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final

import msgspec

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.parsed_body import ParsedBody, PostedEvent
from cordwood.model.json_checks import describe_json_error

# If a JSON body has more commas than this for each allowed item, its items are counted exactly before they are split; a
# text with more line ends than this for each allowed item is refused. With fewer separators, splitting costs little: it
# takes a tenth of the time of decoding.
_SEPARATORS_PER_ITEM_THRESHOLD: Final = 8
# The maximum number of JSON values of a document, divided by the maximum number of its items.
_MAX_JSON_VALUES_PER_ITEM: Final = 64
# Items that are nested deeper than this are not matched by the patterns below.
_MAX_PATTERN_NESTING_DEPTH: Final = 32

_STRING_PATTERN: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'


def _item_pattern(levels: int) -> str:
    """Return a pattern for one item, up to the comma or the closing bracket after it.

    The brackets of the item may be nested up to `levels` deep. The pattern is possessive, so it never backtracks.
    """
    return rf"(?:[^\"\[\]{{}},]++|{_STRING_PATTERN}|[\[{{]{_bracket_content_pattern(levels)}*+[\]}}])*+"


def _bracket_content_pattern(levels: int) -> str:
    """Return a possessive pattern for the content of brackets that are nested up to `levels` deep."""
    nested = rf"(?:[^\"\[\]{{}}]++|{_STRING_PATTERN})"
    for _ in range(levels - 1):
        nested = rf"(?:[^\"\[\]{{}}]++|{_STRING_PATTERN}|[\[{{]{nested}*+[\]}}])"
    return nested


_ITEM_PATTERN: Final = re.compile(_item_pattern(_MAX_PATTERN_NESTING_DEPTH).encode(), re.DOTALL)
_OBJECT_PATTERN: Final = re.compile(rf"\{{{_bracket_content_pattern(_MAX_PATTERN_NESTING_DEPTH)}*+\}}", re.DOTALL)
_WHITESPACE_PATTERN: Final = re.compile(r"[ \t\r\n]*+")


class _DocumentWithRequiredBatch(msgspec.Struct, gc=False):
    batch: msgspec.Raw


_required_batch_decoder = msgspec.json.Decoder(_DocumentWithRequiredBatch)


def check_object_count(document: bytes | str, limit: int) -> None:
    """Raise BodyTooLarge if a JSON array, or the array `batch` of an object, has more than `limit` objects."""
    if _count_occurrences(document, "{") > limit:
        _check_json_item_count(document, limit)


def check_item_count(document: bytes | str, limit: int) -> None:
    """Raise BodyTooLarge if an array, or the array `batch` of an object, has more than `limit` items.

    The items are counted only if the document has more than eight commas for each of `limit` items.
    """
    if _count_occurrences(document, ",") > limit * _SEPARATORS_PER_ITEM_THRESHOLD:
        _check_json_item_count(document, limit)


def check_line_count(text: str, limit: int) -> None:
    """Raise BodyTooLarge if a text has more than eight lines for each of `limit` items. Empty lines count, too."""
    if _count_occurrences(text, "\n") > limit * _SEPARATORS_PER_ITEM_THRESHOLD:
        raise too_many_items_fault(limit)


def check_json_value_count(document: bytes | str, limit: int) -> None:
    """Raise BodyTooLarge if the commas of a JSON document show that it has too many values for `limit` items."""
    if _count_occurrences(document, ",") > limit * _MAX_JSON_VALUES_PER_ITEM:
        raise too_many_items_fault(limit)


def too_many_items_fault(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body holds more than {limit} items.", hint="Send fewer at once.")


def _count_occurrences(text: bytes | str, mark: str) -> int:
    return text.count(mark) if isinstance(text, str) else text.count(mark.encode())


def _check_json_item_count(document: bytes | str, limit: int) -> None:
    data = document.encode() if isinstance(document, str) else document
    start = data[:64].lstrip()[:1]
    if start == b"{":
        try:
            data = bytes(_required_batch_decoder.decode(data).batch)
        except (msgspec.DecodeError, RecursionError):
            return
        start = data[:1]
    if start == b"[":
        _check_array_length(data, data.index(b"[") + 1, limit)


def _check_array_length(data: bytes, position: int, limit: int) -> None:
    """Raise BodyTooLarge if the array whose first item begins at `position` has more than `limit` items."""
    for _ in range(limit):
        item = _ITEM_PATTERN.match(data, position)
        position = item.end() if item else position
        after = data[position : position + 1]
        if after in (b"]", b""):
            return
        if after != b",":
            raise BodyTooLarge(
                f"The body has an item of more than {_MAX_PATTERN_NESTING_DEPTH} levels, and too many others.",
                hint="Send less at once.",
            )
        position += 1
    raise too_many_items_fault(limit)


class _DocumentWithOptionalBatch(msgspec.Struct, gc=False):
    """An object of which only the member `batch` is decoded."""

    batch: msgspec.Raw = msgspec.Raw(b"")


_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_optional_batch_decoder = msgspec.json.Decoder(_DocumentWithOptionalBatch)
_document_decoder = msgspec.json.Decoder(msgspec.Raw)

TOO_DEEP_REASON = "The item is nested too deeply."


def _parse_finite_float_or_text(text: str) -> object:
    return float(text) if math.isfinite(float(text)) else text


# Decodes JSON to plain values; a number beyond the range of a double becomes a string of its digits.
decode_json_value = msgspec.json.Decoder(float_hook=_parse_finite_float_or_text).decode


def split_items(text: str, limit: int) -> list[str]:
    """Return the items of a JSON document; raise BadBody for invalid JSON, BodyTooLarge for more than `limit` items."""
    check_item_count(text, limit)
    try:
        items = _split_document(text)
        if len(items) > limit:
            raise too_many_items_fault(limit)
        return [bytes(item).decode() for item in items]
    except msgspec.DecodeError as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, text.encode())}.") from problem
    except RecursionError:
        return _split_by_tokens(text)


def _split_document(text: str) -> list[msgspec.Raw]:
    start = text.lstrip()[:1]
    if start == "[":
        return _array_decoder.decode(text)
    if start == "{":
        batch = _optional_batch_decoder.decode(text).batch
        if bytes(batch).startswith(b"["):
            return _array_decoder.decode(batch)
    return [_document_decoder.decode(text)]


def decode_fields(item: str, index: int, parsed: ParsedBody) -> dict[str, msgspec.Raw] | None:
    """Return the members of an item. If it is too large or not an object, quarantine it and return None."""
    if len(item) > parsed.max_item_bytes:
        parsed.refuse_item(index, f"The item is larger than {parsed.max_item_bytes} bytes.", item)
        return None
    try:
        return _object_decoder.decode(item)
    except msgspec.ValidationError:
        parsed.refuse_item(index, "The item is not an object.", item)
    except msgspec.DecodeError as problem:
        parsed.refuse_item(index, f"The item is not JSON: {describe_json_error(problem, item.encode())}.", item)
    except RecursionError:
        parsed.refuse_item(index, TOO_DEEP_REASON, item)
    return None


_LONE_SURROGATE_PATTERN = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ANY_SURROGATE_PATTERN = re.compile(r"\\u[dD][89a-fA-F]")


def without_unpaired_surrogates(text: str) -> str:
    """Replace unpaired surrogates in JSON text by U+FFFD, because they cannot be encoded as UTF-8."""
    if not _ANY_SURROGATE_PATTERN.search(text):
        return text
    return _LONE_SURROGATE_PATTERN.sub(lambda match: match[1] or "\\ufffd", text)


_DEPTH_CHANGE_BY_BRACKET = {"[": 1, "{": 1, "]": -1, "}": -1}
# An unclosed string matches up to the end of the text, even if a backslash ends it. If it did not match, each of its
# escaped quotes would be tried as the start of a string, and each attempt would read the rest of the text.
_STRUCTURAL_TOKEN_PATTERN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
# The maximum number of characters that are split into items in Python, without the decoder. Splitting five million
# brackets takes about one second.
_MAX_TOKENIZED_CHARACTERS = 8 * 2**20


def _split_by_tokens(text: str) -> list[str]:
    """Return the items of a document that is nested deeper than the decoder's recursion limit."""
    if len(text) > _MAX_TOKENIZED_CHARACTERS:
        raise BadBody(
            "The body is nested too deeply.", hint="Send fewer items at once, and only that item is quarantined."
        )
    end = next((token.end() for token, depth in _structural_tokens(text) if depth <= 0), None)
    if end is None or text[end:].strip():
        raise BadBody("The body is not JSON: its brackets are not closed.")
    start = text.index("[") if text.lstrip()[:1] == "[" else _find_batch_array_start(text)
    return [text] if start is None else list(_array_elements_by_tokens(text, start))


def _structural_tokens(text: str, start: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Yield each string, comma and bracket with the nesting depth after it, until the first bracket is closed."""
    depth = 0
    for token in _STRUCTURAL_TOKEN_PATTERN.finditer(text, start):
        depth += _DEPTH_CHANGE_BY_BRACKET.get(token[0], 0)
        yield token, depth
        if depth <= 0:
            return


def split_objects(text: str, limit: int) -> Iterator[str | None]:
    """Yield the texts of concatenated JSON objects; at the first text that is not an object, yield None and stop.

    The content between the brackets of an object is not validated. Raise BodyTooLarge for more than `limit` objects.
    """
    position = found = 0
    tokenizer_budget = _MAX_TOKENIZED_CHARACTERS
    while (start := _skip_whitespace(text, position)) < len(text):
        found += 1
        if found > limit:
            raise too_many_items_fault(limit)
        match = _OBJECT_PATTERN.match(text, start)
        end = match.end() if match else _find_object_end_by_tokens(text, start, tokenizer_budget)
        if end is None:
            yield None
            return
        if match is None:
            tokenizer_budget -= end - start
        yield text[start:end]
        position = end


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE_PATTERN.match(text, position)
    return match.end() if match else position


def _find_object_end_by_tokens(text: str, start: int, limit: int) -> int | None:
    """Return the end of an object that is nested too deeply for `_OBJECT_PATTERN`.

    Return None if there is no object at `start`, or if it does not end within `limit` characters.
    """
    if text[start] != "{":
        return None
    depth = 0
    for token in _STRUCTURAL_TOKEN_PATTERN.finditer(text, start, start + limit):
        depth += _DEPTH_CHANGE_BY_BRACKET.get(token[0], 0)
        if depth <= 0:
            return token.end()
    return None


def _find_batch_array_start(text: str) -> int | None:
    """Return the start of the array under the key `batch`, or None if there is none."""
    key_end = None
    for token, depth in _structural_tokens(text):
        if key_end is not None and token[0] == "[" and text[key_end : token.start()].strip() == ":":
            return token.start()
        key_end = token.end() if depth == 1 and token[0] == '"batch"' else None
    return None


def _array_elements_by_tokens(text: str, start: int) -> Iterator[str]:
    """Yield the elements of the array whose opening bracket is at `start`."""
    start += 1
    for token, depth in _structural_tokens(text, start - 1):
        if token[0] + str(depth) in {",1", "]0"}:
            yield text[start : token.start()].strip()
            start = token.end()


_value_decoder = msgspec.json.Decoder()
_EVENT_FIELDS = ("id", "timestamp", "event_message", "message", "project", "metadata")
# All names that differ from a field of events only in case. There are about 5,000.
_CASE_VARIANTS = frozenset(
    "".join(letters)
    for name in _EVENT_FIELDS
    for letters in product(*({letter, letter.upper()} for letter in name))
    if "".join(letters) != name
)
# A JSON string that is neither empty nor consists of digits only.
_QUOTED_ID_PATTERN = re.compile(rb'"(?!\d*")')

RawFields = dict[str, msgspec.Raw]


def add_items(items: Sequence[str], parsed: ParsedBody) -> ParsedBody:
    """Decode items and add them to `parsed`, which must be empty; return `parsed`."""
    for index, item in enumerate(items):
        fields = decode_fields(item, index, parsed)
        if fields is not None:
            add_event_from_fields(fields, index, parsed)
    return parsed


def rename_case_variants(fields: RawFields) -> RawFields:
    """Return the members of an event, with names that differ from an event field only in case replaced by its name.

    SQL ignores the case of names, so a query could not read a key such as `Timestamp` beside the column `timestamp`. A
    key keeps its name if the event also has the field itself, and so does every further spelling of the same field.
    `Message` also keeps its name if the event has an `event_message`. `Id` keeps its name if its value is a number,
    because this is usually the id of a kind of event, and events with equal ids would be dropped as duplicates.
    """
    # This test takes a quarter of the time of comparing each name in lower case.
    if _CASE_VARIANTS.isdisjoint(fields):
        return fields
    missing = {name for name in _EVENT_FIELDS if name not in fields}
    if any(name.lower() == "event_message" for name in fields):
        missing.discard("message")
    renamed: RawFields = {}
    for name, value in fields.items():
        field = name.lower()
        if field in missing and (field != "id" or _QUOTED_ID_PATTERN.match(value)):
            missing.remove(field)
            renamed[field] = value
        else:
            renamed[name] = value
    return renamed


def add_event_from_fields(fields: RawFields, index: int, parsed: ParsedBody) -> None:
    fields = rename_case_variants(fields)
    known = {name: fields.pop(name) for name in _EVENT_FIELDS if name in fields}
    posted = PostedEvent(
        id=raw_to_text(known.get("id")),
        timestamp=raw_to_scalar(known.get("timestamp")),
        event_message=raw_to_text(known.get("event_message")),
        message=raw_to_text(known.get("message")),
        project=raw_to_text(known.get("project")),
        metadata=known.get("metadata", msgspec.Raw(b"")),
    )
    parsed.add_event(posted, index, fields)


def raw_to_text(raw: msgspec.Raw | None) -> str | None:
    """Return the content of a JSON string, any other value as JSON text, and None for null."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text.startswith('"'):
        return str(_value_decoder.decode(raw))
    return None if text == "null" else text


def raw_to_scalar(raw: msgspec.Raw | None) -> str | int | float | None:
    if raw is None:
        return None
    try:
        value = _value_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw).decode()
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


_READ_CHUNK_BYTES: Final = 256 * 1024
_JSON_WHITESPACE_PATTERN: Final = re.compile(r"[ \t\r\n]*")
# Matches after a value if the text that was read so far ends there, or has only characters of a number up to its end.
# The value may then be a number that continues in the next chunk.
_POSSIBLY_INCOMPLETE_NUMBER_PATTERN: Final = re.compile(r"[\d.eE+-]*\Z")
# An error this close to the end of the text may come from a token that is cut off there. Such a token (for example the
# literal `false`, or a pair of surrogate escapes) is not longer than this.
_MAX_TRUNCATED_TOKEN_CHARACTERS: Final = 16
_JSON_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


class JsonItem(msgspec.Struct, frozen=True):
    """An item, with the number (from 1) of the line on which it begins."""

    line_number: int
    text: str


class JsonItemReader:
    """Reads the items of concatenated JSON documents.

    `read` returns the next bytes, and no bytes at the end. `read_items` raises BadBody for an item of more than
    `max_characters`.
    """

    def __init__(self, read: Callable[[int], bytes], max_characters: int) -> None:
        self._read_bytes = read
        self._decode_chunk = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._max_item_characters = max_characters
        self._buffered_text = ""
        self._position = 0
        self._line_number = 1
        self._is_exhausted = False

    def read_items(self) -> Iterator[JsonItem]:
        """Yield the items; if the text is not JSON, raise BadBody with the number of the faulty line."""
        while self._peek_character():
            if self._buffered_text[self._position] == "[":
                yield from self._read_array_items()
            else:
                yield self._read_item()

    def _read_array_items(self) -> Iterator[JsonItem]:
        self._skip_characters(1)
        while self._peek_character() != "]":
            yield self._read_item()
            following = self._peek_character()
            if following == ",":
                self._skip_characters(1)
            elif following != "]":
                raise self._syntax_fault(
                    "a comma or a closing bracket is missing" if following else "the array is not closed"
                )
        self._skip_characters(1)

    def _read_item(self) -> JsonItem:
        if not self._peek_character():
            raise self._syntax_fault("the array is not closed")
        end, line = self._find_item_end(), self._line_number
        text = self._buffered_text[self._position : end]
        self._skip_characters(end - self._position)
        return JsonItem(line, text)

    def _find_item_end(self) -> int:
        """Return the end of the next value. Read more text while the value may be incomplete."""
        while True:
            try:
                _, end = _JSON_DECODER.raw_decode(self._buffered_text, self._position)
            except RecursionError:
                raise self._syntax_fault("it is nested too deeply") from None
            except json.JSONDecodeError as problem:
                if self._is_exhausted or not self._may_be_caused_by_truncation(problem):
                    raise self._syntax_fault(problem.msg.rstrip(".").lower(), problem.pos) from None
            else:
                if self._is_exhausted or not _POSSIBLY_INCOMPLETE_NUMBER_PATTERN.match(self._buffered_text, end):
                    return end
            if len(self._buffered_text) - self._position > self._max_item_characters:
                raise self._syntax_fault(
                    f"an item is longer than {self._max_item_characters:,} characters, or is not JSON"
                )
            self._read_more(max(_READ_CHUNK_BYTES, len(self._buffered_text) - self._position))

    def _may_be_caused_by_truncation(self, problem: json.JSONDecodeError) -> bool:
        """Return whether a decoding error may be caused by text that is not read yet.

        This is possible for an unterminated string, and for an error near the end of the text.
        """
        return (
            problem.msg.startswith("Unterminated string")
            or len(self._buffered_text) - problem.pos <= _MAX_TRUNCATED_TOKEN_CHARACTERS
        )

    def _peek_character(self) -> str:
        """Skip white space; return the next character, or an empty text at the end."""
        while True:
            end = _JSON_WHITESPACE_PATTERN.match(self._buffered_text, self._position).end()  # type: ignore[union-attr] # it always matches
            self._skip_characters(end - self._position)
            if self._position < len(self._buffered_text):
                return self._buffered_text[self._position]
            if self._is_exhausted:
                return ""
            self._read_more(_READ_CHUNK_BYTES)

    def _skip_characters(self, count: int) -> None:
        end = self._position + count
        self._line_number += self._buffered_text.count("\n", self._position, end)
        self._position = end

    def _read_more(self, size: int) -> None:
        """Read more text, and drop the text before the current position."""
        data = self._read_bytes(size)
        self._is_exhausted = not data
        self._buffered_text = self._buffered_text[self._position :] + self._decode_chunk(data, not data)
        self._position = 0

    def _syntax_fault(self, cause: str, position: int = 0) -> BadBody:
        line = self._line_number + self._buffered_text.count("\n", self._position, position)
        return BadBody(f"Line {line}: the text is not JSON: {cause}.")
