"""Batches of events from the loggers of Elixir and Erlang, as JSON or in Erlang's external term format (BERT).

A body is one event, a list of events, or an object `{"batch": […]}` with a list of events. Only data is decoded:
functions, references, processes and ports are refused. An atom (Erlang's named constant) becomes a string, or null,
true or false. The nesting depth, the number of terms and the length of integers are limited.
"""

import math
import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import add_items, too_many_items_fault
from cordwood.ingest.parsed_body import Body, ParsedBody

TERM_FORMAT_VERSION: Final = 131
COMPRESSED_TAG: Final = 80
# The number of bytes before a compressed term: the version, the tag, and the length of the decompressed term.
COMPRESSED_HEADER_BYTES: Final = 6

_MAX_TERM_LEVELS: Final = 100
_MAX_INTEGER_BYTES: Final = 1024
_ATOM_VALUES: Final[Mapping[str, bool | None]] = {
    "true": True,
    "false": False,
    "nil": None,
    "null": None,
    "undefined": None,
}
_PRINTABLE_BYTES: Final = frozenset((*range(32, 127), 9, 10, 13))
_MAX_EXACT_INTEGER: Final = 2**64 - 1


class BadTerm(ValueError):
    """Raised for bytes that end early, exceed a limit, or contain a term that is not data, such as a function."""


class Atom(str):
    """The name of an atom, which is Erlang's named constant.

    The type distinguishes an atom from a text: the atom `nil` becomes null, but the text "nil" stays a text.
    """

    __slots__ = ()


def is_compressed(data: bytes) -> bool:
    return data[:2] == bytes((TERM_FORMAT_VERSION, COMPRESSED_TAG))


def read_term(data: bytes, max_terms: int) -> object:
    """Return the single term of a body as JSON values; raise BadTerm if the body is anything but one valid term."""
    if data[:1] != bytes((TERM_FORMAT_VERSION,)):
        raise BadTerm(f"it does not begin with the version byte {TERM_FORMAT_VERSION}")
    reader = _TermReader(data, max_terms)
    value = reader.read_term(0)
    if reader.position != len(data):
        raise BadTerm(f"there is more after the term, at byte {reader.position}")
    return value


class _TermReader:
    """A reader of the terms in a byte string, with the position of the next byte and a method for each kind of term."""

    def __init__(self, data: bytes, max_terms: int) -> None:
        self.position = 1
        self._data = data
        self._terms_left = max_terms
        self._readers_by_tag: Mapping[int, Callable[[int], object]] = {
            70: self._read_float,
            97: lambda _: self._read_integer(1),
            98: lambda _: self._read_integer(4, signed=True),
            99: self._read_text_float,
            100: lambda _: self._read_atom(2, "latin-1"),
            104: lambda level: self._read_tuple(self._read_integer(1), level),
            105: lambda level: self._read_tuple(self._read_integer(4), level),
            106: lambda _: [],
            107: self._read_byte_list,
            108: self._read_list,
            109: lambda _: self._read_bytes(self._read_integer(4)).decode("utf-8", "replace"),
            110: lambda _: self._read_big_integer(self._read_integer(1)),
            111: lambda _: self._read_big_integer(self._read_integer(4)),
            115: lambda _: self._read_atom(1, "latin-1"),
            116: self._read_map,
            118: lambda _: self._read_atom(2, "utf-8"),
            119: lambda _: self._read_atom(1, "utf-8"),
        }

    def read_term(self, level: int) -> object:
        """Read a term at the nesting depth `level`.

        The atoms nil, true and false become null, true and false in JSON.
        """
        value = self._read_keeping_atoms(level)
        return _ATOM_VALUES.get(value, str(value)) if isinstance(value, Atom) else value

    def _read_keeping_atoms(self, level: int) -> object:
        if level > _MAX_TERM_LEVELS:
            raise BadTerm(f"it is nested deeper than {_MAX_TERM_LEVELS} levels")
        self._terms_left -= 1
        if self._terms_left < 0:
            raise BadTerm("it has too many terms")
        place, tag = self.position, self._read_integer(1)
        reader = self._readers_by_tag.get(tag)
        if reader is None:
            raise BadTerm(f"the term at byte {place} is not data (tag {tag})")
        return reader(level)

    def _read_bytes(self, size: int) -> bytes:
        taken = self._data[self.position : self.position + size]
        if len(taken) < size:
            raise BadTerm("it ends early")
        self.position += size
        return taken

    def _read_integer(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._read_bytes(size), "big", signed=signed)

    def _read_float(self, _: int) -> object:
        (number,) = struct.unpack(">d", self._read_bytes(8))
        return number if math.isfinite(number) else str(number)

    def _read_text_float(self, _: int) -> object:
        text = self._read_bytes(31).rstrip(b"\0").decode("latin-1")
        try:
            number = float(text)
        except ValueError:
            raise BadTerm("a number cannot be read") from None
        return number if math.isfinite(number) else text

    def _read_big_integer(self, size: int) -> object:
        """Read a big integer. If it does not fit in 64 bits, return its digits as a text."""
        is_negative = self._read_integer(1)
        if size > _MAX_INTEGER_BYTES:
            raise BadTerm(f"an integer has more than {_MAX_INTEGER_BYTES} bytes")
        number = int.from_bytes(self._read_bytes(size), "little")
        signed = -number if is_negative else number
        return signed if -(2**63) <= signed <= _MAX_EXACT_INTEGER else str(signed)

    def _read_atom(self, length_size: int, letters: str) -> Atom:
        return Atom(self._read_bytes(self._read_integer(length_size)).decode(letters, "replace"))

    def _read_byte_list(self, _: int) -> object:
        """Read a list of bytes, which is Erlang's form of a text, and return it as a text.

        If a byte is not printable, return a list of numbers instead.
        """
        found = self._read_bytes(self._read_integer(2))
        return found.decode("ascii") if _PRINTABLE_BYTES.issuperset(found) else list(found)

    def _read_list(self, level: int) -> list[object]:
        values = [self.read_term(level + 1) for _ in range(self._check_term_count(self._read_integer(4)))]
        tail = self.read_term(level + 1)
        return values if tail == [] else [*values, tail]

    def _read_tuple(self, size: int, level: int) -> object:
        values = [self._read_keeping_atoms(level + 1) for _ in range(self._check_term_count(size))]
        if values and isinstance(values[0], Atom) and values[0] == "bert":
            return _convert_bert_tuple(values[1:])
        return [_ATOM_VALUES.get(value, str(value)) if isinstance(value, Atom) else value for value in values]

    def _read_map(self, level: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for _ in range(self._check_term_count(self._read_integer(4))):
            key = self._read_keeping_atoms(level + 1)
            found[_map_key_text(key)] = self.read_term(level + 1)
        return found

    def _check_term_count(self, size: int) -> int:
        """Return `size`, the number of terms to read next; raise BadTerm if there cannot be so many.

        This is the case if fewer bytes are left, or if the limit allows fewer terms. Call this method before allocating
        memory for the terms.
        """
        if size > min(self._terms_left, len(self._data) - self.position):
            raise BadTerm("it ends early, or has too many terms")
        return size


def _map_key_text(key: object) -> str:
    if isinstance(key, list | dict):
        raise BadTerm("a key of a map is not a text")
    return str(key)


def _convert_bert_tuple(values: list[object]) -> object:
    """Convert the values of one of BERT's special tuples, which stand for nil, true, false or a dictionary.

    A dictionary is written as a list of pairs.
    """
    match values:
        case [Atom() as word] if word in _ATOM_VALUES:
            return _ATOM_VALUES[word]
        case [Atom("dict"), list() as pairs]:
            return {_map_key_text(pair[0]): pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2}
        case _:
            return ["bert", *(_ATOM_VALUES.get(one, str(one)) if isinstance(one, Atom) else one for one in values)]


_encode = msgspec.json.Encoder().encode

_MAX_TERMS_PER_ITEM = 16


def read_bert(body: Body) -> ParsedBody:
    try:
        value = read_term(body.data, body.max_items * _MAX_TERMS_PER_ITEM)
    except (BadTerm, RecursionError) as problem:
        raise BadBody(f"The body is not BERT: {problem}.") from problem
    batch = value.get("batch", value) if isinstance(value, dict) else value
    items = batch if isinstance(batch, list) else [batch]
    if len(items) > body.max_items:
        raise too_many_items_fault(body.max_items)
    return add_items([_encode(item).decode() for item in items], ParsedBody.create_empty_for_body(body))
