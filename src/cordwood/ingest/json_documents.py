"""Split a stream of JSON documents into items, in bounded memory: the elements of arrays, and all other values."""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from cordwood.errors import BadBody

_CHUNK_BYTES: Final = 256 * 1024
_WHITESPACE: Final = re.compile(r"[ \t\r\n]*")
# Matches the end of a text after which the value may continue, as a number does.
_MAY_CONTINUE: Final = re.compile(r"[\d.eE+-]*\Z")
# At least as long as any token other than strings and numbers, and as a pair of surrogate escapes.
_MAX_TOKEN_LENGTH: Final = 16
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


class JsonItem(msgspec.Struct, frozen=True):
    """An item, with the number of its first line from 1."""

    line: int
    text: str


class JsonDocuments:
    """The items of concatenated JSON documents. `read` returns the next bytes, and none at the end.

    An item of more than `max_characters` is refused.
    """

    def __init__(self, read: Callable[[int], bytes], max_characters: int) -> None:
        self._read = read
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._limit = max_characters
        self._text = ""
        self._at = 0
        self._line = 1
        self._is_exhausted = False

    def items(self) -> Iterator[JsonItem]:
        """Yield the items; raise BadBody with the line where the text is not JSON."""
        while self._next_character():
            if self._text[self._at] == "[":
                yield from self._elements()
            else:
                yield self._item()

    def _elements(self) -> Iterator[JsonItem]:
        self._skip(1)
        while self._next_character() != "]":
            yield self._item()
            following = self._next_character()
            if following == ",":
                self._skip(1)
            elif following != "]":
                raise self._syntax_fault(
                    "a comma or a closing bracket is missing" if following else "the array is not closed"
                )
        self._skip(1)

    def _item(self) -> JsonItem:
        if not self._next_character():
            raise self._syntax_fault("the array is not closed")
        end, line = self._end_of_item(), self._line
        text = self._text[self._at : end]
        self._skip(end - self._at)
        return JsonItem(line, text)

    def _end_of_item(self) -> int:
        """Return the end of the next value. While the value may be incomplete, read more."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._syntax_fault("it is nested too deeply") from None
            except json.JSONDecodeError as problem:
                if self._is_exhausted or not self._may_be_cut(problem):
                    raise self._syntax_fault(problem.msg.rstrip(".").lower(), problem.pos) from None
            else:
                if self._is_exhausted or not _MAY_CONTINUE.match(self._text, end):
                    return end
            if len(self._text) - self._at > self._limit:
                raise self._syntax_fault(f"an item is longer than {self._limit:,} characters, or is not JSON")
            self._fill(max(_CHUNK_BYTES, len(self._text) - self._at))

    def _may_be_cut(self, problem: json.JSONDecodeError) -> bool:
        """Return whether a value may be incomplete: within a string, or at a token at the end of the text."""
        return problem.msg.startswith("Unterminated string") or len(self._text) - problem.pos <= _MAX_TOKEN_LENGTH

    def _next_character(self) -> str:
        """Skip white space; return the next character, or an empty text at the end."""
        while True:
            end = _WHITESPACE.match(self._text, self._at).end()  # type: ignore[union-attr] # it always matches
            self._skip(end - self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if self._is_exhausted:
                return ""
            self._fill(_CHUNK_BYTES)

    def _skip(self, count: int) -> None:
        end = self._at + count
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _fill(self, size: int) -> None:
        """Read more text, and drop the text before the current position."""
        data = self._read(size)
        self._is_exhausted = not data
        self._text = self._text[self._at :] + self._decode(data, not data)
        self._at = 0

    def _syntax_fault(self, cause: str, position: int = 0) -> BadBody:
        line = self._line + self._text.count("\n", self._at, position)
        return BadBody(f"Line {line}: the text is not JSON: {cause}.")
