"""The printer of lowered trees, in two steps, so that user text is only ever written as a quoted name or literal.

First the tree becomes a `Draft`, in which a token stands for each name, text, bytes literal, slot and segment of the
plan. Then one pass over the draft replaces each token by its written form, which is not scanned again. Parentheses,
commas and quotes are therefore counted only in text of the templates, and user text reaches the engine only as a name
or a literal that the engine's `Script` wrote.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count, groupby
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.sql.budget import spend, write
from cordwood.sql.fragment import (
    AS_IT_IS,
    BLOCKS,
    FRAGMENT,
    OPTIONAL,
    VERBATIM,
    filter_of,
    is_fragment,
    parts_of,
    template_of,
    template_pieces,
    written_of,
)
from cordwood.sql.nodes import swap
from cordwood.sql.plan import BlockFilter, OptionalPredicate, Segment, Segments, print_segments

_NAME: Final = r'(?:\w+|"(?:[^"]|"")*")'
_ATOM: Final = re.compile(rf"{_NAME}(?:\.{_NAME})*|'(?:[^']|'')*'")
_CLOSERS: Final = {"(": ")", "[": "]"}
_NUMBER: Final = re.compile(
    r"-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)", re.ASCII
)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The prefix of placeholder tokens, random so that no template contains it. Texts are never part of a draft.
_TOKEN: Final = f"_{secrets.token_hex(8)}_"
_HELD: Final = re.compile(rf"{_TOKEN}(\d+_\d+)_")
_drafts: Final = count()

# Templates that repeat a part double the length with every nesting; this is the limit.
LONGEST: Final = 1_000_000
_LONGEST_WRITTEN: Final = 4 * LONGEST

Printer = Callable[[exp.Expr], str]


class Script(Protocol):
    """The engine's spelling of names, texts, bytes and slots."""

    # Matches a quoted text or name, or a comment, as the engine's lexer delimits it.
    quoted: re.Pattern[str]

    def spelled(self, name: str) -> str:
        """Return the engine's identifier for a name. Distinct names have distinct identifiers."""

    def name(self, name: str) -> str:
        """Write a name that `spelled` returned as a quoted identifier."""

    def text(self, text: str) -> str:
        """Write a text as an expression."""

    def data(self, data: bytes) -> str:
        """Write bytes as an expression."""

    def slot(self, slot: exp.Parameter) -> str:
        """Write the placeholder of a bound value, whose name is a plain word."""


class Printed(msgspec.Struct, frozen=True):
    """A printed tree: segments of the plan, and the slots in them."""

    segments: Segments
    slots: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The SQL with all of its conditions."""
        return print_segments(self.segments)


class _Name(msgspec.Struct, frozen=True):
    name: str


class _Text(msgspec.Struct, frozen=True):
    text: str


class _Slot(msgspec.Struct, frozen=True):
    name: str
    written: str


class _Verbatim(msgspec.Struct, frozen=True):
    written: str


class _Optional(msgspec.Struct, frozen=True):
    """An optional predicate whose sides are drafts."""

    parameter: str
    test: str
    predicate: str


_Part = _Name | _Text | _Slot | _Verbatim | _Optional | BlockFilter | bytes


def print_tree(tree: exp.Expr, printer: Printer, script: Script) -> Printed:
    """Print a tree with the dialect's printer, and its fragments by their templates. Mutates the tree."""
    draft = Draft(tree, printer, script)
    return draft.written(draft.text)


class Draft:
    """A printed tree with placeholder tokens for names, texts, bytes, slots and segments. Mutates the tree."""

    def __init__(self, tree: exp.Expr, printer: Printer, script: Script) -> None:
        self._printer = printer
        self._script = script
        self._serial = next(_drafts)
        self._held: dict[_Part, int] = {}
        self._slots: set[str] = set()
        self._length = 0
        self.text = self._printed(tree)

    def written(self, text: str) -> Printed:
        """Replace the tokens in `text`, the draft with text of the printer around it, by what they stand for."""
        self._slots, self._length = set(), 0
        segments = self._segments(text, list(self._held))
        return Printed(segments, frozenset(self._slots))

    def _segments(self, text: str, parts: Sequence[_Part]) -> Segments:
        self._check(text)
        pieces: list[Segment] = []
        for place, piece in enumerate(_HELD.split(text)):
            pieces.append(self._segment(parts[self._number_of(piece)], parts) if place % 2 else piece)
        return _merged(pieces)

    def _segment(self, part: _Part, parts: Sequence[_Part]) -> Segment:
        if isinstance(part, BlockFilter):
            return part
        if isinstance(part, _Optional):
            sides = (self._segments(side, parts) for side in (part.test, part.predicate))
            return OptionalPredicate(part.parameter, *sides)
        if isinstance(part, _Slot):
            self._slots.add(part.name)
        written = self._written(part)
        write(len(written))
        self._length += len(written)
        if self._length > _LONGEST_WRITTEN:
            raise _too_long()
        return written

    def _number_of(self, token: str) -> int:
        serial, number = map(int, token.split("_"))
        if serial != self._serial:
            raise ValueError("a tree was printed before")
        return number

    def _check(self, text: str) -> None:
        """Raise ValueError for a token inside quotes or a comment of a template, where its quoting would be wrong."""
        if any(_TOKEN in found[0] for found in self._script.quoted.finditer(text)):
            raise ValueError("a part stands in quotes")

    def _written(self, part: _Name | _Text | _Slot | _Verbatim | bytes) -> str:
        if isinstance(part, _Name):
            return self._script.name(part.name)
        if isinstance(part, _Text):
            return self._script.text(part.text)
        if isinstance(part, (_Slot, _Verbatim)):
            return part.written
        return self._script.data(part)

    def _printed(self, tree: exp.Expr) -> str:
        text = self._alone(tree)
        if text is not None:
            return text
        nodes = list(tree.walk(prune=_is_apart))
        spend(len(nodes))
        for node in nodes:
            held = self._alone(node)
            if held is not None:
                is_whole = not is_fragment(node) or self._is_closed(held)
                swap(node, exp.Var(this=held if is_whole else f"({held})"))
        printed = self._printer(tree)
        write(len(printed))
        return printed

    def _alone(self, node: exp.Expr) -> str | None:
        """Return the text of a node that sqlglot must not print; None for other nodes."""
        if isinstance(node, exp.Anonymous):
            return self._filled(node) if node.this == FRAGMENT else self._of_plan(node)
        if isinstance(node, exp.Literal) and not node.is_string:
            return _number(node)
        if isinstance(node, exp.Var):
            return _word(node.name)
        part = self._part(node)
        return None if part is None else self._hold(part)

    def _part(self, node: exp.Expr) -> _Part | None:
        """Return the part for which a token is printed; None for other nodes."""
        if isinstance(node, exp.Identifier):
            return _Name(node.name if node.meta_get(AS_IT_IS) else self._script.spelled(node.name))
        if isinstance(node, exp.Literal):
            return _Text(node.this)
        if isinstance(node, exp.Parameter):
            return _Slot(_word(node.name), self._script.slot(node))
        return node.this.encode("latin-1") if isinstance(node, exp.ByteString) else None

    def _of_plan(self, node: exp.Anonymous) -> str | None:
        """Return the token of a segment of the plan, or of verbatim text."""
        if node.this == BLOCKS:
            return self._hold(filter_of(node))
        if node.this == VERBATIM:
            return self._hold(_Verbatim(written_of(node)))
        if node.this != OPTIONAL:
            return None
        test, predicate, parameter = node.expressions
        return self._hold(_Optional(_word(parameter.name), self._side(test), self._side(predicate)))

    def _side(self, condition: exp.Expr) -> str:
        printed = self._printed(condition)
        return printed if self._is_closed(printed) else f"({printed})"

    def _hold(self, part: _Part) -> str:
        return f"{_TOKEN}{self._serial}_{self._held.setdefault(part, len(self._held))}_"

    def _filled(self, node: exp.Expr) -> str:
        pieces = template_pieces(template_of(node))
        parts = parts_of(node)
        texts = [self._printed(part) for part in parts]
        filled = "".join(
            piece if isinstance(piece, str) else self._set(texts[piece], parts[piece], pieces, place)
            for place, piece in enumerate(pieces)
        )
        write(len(filled))
        if len(filled) > LONGEST:
            raise _too_long()
        return filled

    def _set(self, text: str, part: exp.Expr, pieces: Sequence[str | int], place: int) -> str:
        alone = isinstance(part, exp.Ordered) or _stands_alone(pieces, place) or self._is_closed(text)
        return text if alone else f"({text})"

    def _is_closed(self, text: str) -> bool:
        return is_closed(text, self._script.quoted)


def _is_apart(node: exp.Expr) -> bool:
    """Return whether the node's children are printed with it, not by sqlglot."""
    return isinstance(node, (exp.Parameter, exp.Literal, exp.Identifier)) or (
        isinstance(node, exp.Anonymous) and node.this in (FRAGMENT, OPTIONAL, BLOCKS, VERBATIM)
    )


def _merged(pieces: Sequence[Segment]) -> Segments:
    """Return the pieces with adjacent texts joined."""
    merged: list[Segment] = []
    for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str)):
        found = list(run)
        merged += [_encodable("".join(map(str, found)))] if is_text else found
    return tuple(segment for segment in merged if segment != "")


def _number(node: exp.Literal) -> str:
    spelled = str(node.this)
    if not _NUMBER.fullmatch(spelled):
        raise ValueError("no number")
    return spelled


def _word(name: str) -> str:
    if not _WORD.fullmatch(name):
        raise ValueError("no word")
    return name


def _encodable(text: str) -> str:
    """Return the text; raise QueryUnsupported if it contains a lone surrogate, which no engine accepts."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryUnsupported("A text that is not Unicode is not supported", hint="Remove its surrogates.") from error
    return text


def _too_long() -> QueryUnsupported:
    return QueryUnsupported("An expression nested so deeply is not supported", hint="Split it into sub-queries.")


def _stands_alone(pieces: Sequence[str | int], place: int) -> bool:
    """Return whether the hole is delimited by commas or parentheses on both sides.

    Between two holes there is always a piece of text.
    """
    before, after = str(pieces[place - 1]).rstrip(), str(pieces[place + 1]).lstrip()
    opens = before.endswith(("(", ",", "[")) if before else place == 1
    closes = after.startswith((")", ",", "]")) if after else place == len(pieces) - 2
    return opens and closes


def is_closed(text: str, quoted: re.Pattern[str]) -> bool:
    """Return whether the text is a single operand that needs no parentheses.

    It is an atom with any calls and subscripts after it, or parenthesised as a whole.
    """
    atom = _ATOM.match(text)
    at = atom.end() if atom else 0
    while at < len(text) and text[at] in _CLOSERS:
        closed = _closing(text, at, quoted)
        if closed < 0:
            return False
        at = closed + 1
    return at == len(text)


def _closing(text: str, opened: int, quoted: re.Pattern[str]) -> int:
    """Return where the parenthesis at `opened` closes, skipping quoted text; -1 if it or a quote is not closed."""
    stack: list[str] = []
    for found in _delimiters(quoted).finditer(text, opened):
        char = found[1]
        if char is None:
            continue
        if char in "'\"`":
            return -1
        if char in _CLOSERS:
            stack.append(_CLOSERS[char])
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return found.start()
    return -1


@cache
def _delimiters(quoted: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern that matches quoted text as a whole; its group 1 is a bracket, or an unterminated quote."""
    return re.compile(rf"(?:{quoted.pattern})|([\[\]()'\"`])", quoted.flags)
