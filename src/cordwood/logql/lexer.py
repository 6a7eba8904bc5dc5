"""The lexer of LogQL: the text as tokens, each with its position, and a cursor over them that counts and limits."""

import re
from enum import Enum, auto
from typing import Final, TypeVar

import msgspec

from cordwood.errors import QueryFault, QuerySyntax, QueryUnsupported
from cordwood.logql.quantities import read_bytes, read_duration
from cordwood.sql.positions import span_at

MAX_CHARACTERS: Final = 16 * 1024
MAX_TOKENS: Final = 1500
MAX_NAME: Final = 200


class Kind(Enum):
    """The kind of a token."""

    NAME = auto()
    TEXT = auto()
    NUMBER = auto()
    DURATION = auto()
    BYTES = auto()
    SYMBOL = auto()
    END = auto()


class Token(msgspec.Struct, frozen=True):
    """A token. `text` is what it says: a text without quotes, otherwise as written. `number` is its value, if any."""

    kind: Kind
    text: str
    offset: int
    number: float = 0.0


_SKIPPED: Final = re.compile(r"(?:\s|#[^\n]*)+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.µμ])")
_QUANTITY: Final = re.compile(r"(?:\d+(?:\.\d+)?[A-Za-zµμ]+)+(?![\w.])")
_SYMBOL: Final = re.compile(r"\|=|\|~|\|>|!>|!=|!~|=~|==|>=|<=|--|[=<>|{}()\[\],+\-*/%^]")
_QUOTED: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_RAW: Final = re.compile(r"`([^`]*)`")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}
_MOST_DIGITS: Final = 30
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CHARACTER: Final = 0x10FFFF


def _tokens_of(text: str) -> list[Token]:
    """Return the tokens of the text, the last of the kind END; raise QuerySyntax where there is none."""
    if len(text) > MAX_CHARACTERS:
        raise QuerySyntax(f"The query is longer than {MAX_CHARACTERS} characters.", span=span_at(text, MAX_CHARACTERS))
    tokens: list[Token] = []
    offset = 0
    while True:
        skipped = _SKIPPED.match(text, offset)
        offset = skipped.end() if skipped else offset
        if offset >= len(text):
            tokens.append(Token(Kind.END, "", len(text)))
            return tokens
        if len(tokens) == MAX_TOKENS:
            raise QuerySyntax(f"The query has more than {MAX_TOKENS} words and signs.", span=span_at(text, offset))
        token, offset = _token(text, offset)
        tokens.append(token)


def _token(text: str, offset: int) -> tuple[Token, int]:
    """Return the token at the position, and the position after it."""
    if text[offset] in "\"`'":
        return _quoted(text, offset)
    name = _NAME.match(text, offset)
    if name and len(name[0]) > MAX_NAME:
        raise QuerySyntax(f"A name is longer than {MAX_NAME} characters.", span=span_at(text, offset))
    if name:
        return Token(Kind.NAME, name[0], offset), name.end()
    number = _NUMBER.match(text, offset)
    if number:
        if len(number[0]) > _MOST_DIGITS:
            raise QuerySyntax(f"A number has more than {_MOST_DIGITS} digits.", span=span_at(text, offset))
        return Token(Kind.NUMBER, number[0], offset, float(number[0])), number.end()
    quantity = _QUANTITY.match(text, offset)
    if quantity:
        return _quantity(text, quantity[0], offset), quantity.end()
    symbol = _SYMBOL.match(text, offset)
    if symbol:
        return Token(Kind.SYMBOL, symbol[0], offset), symbol.end()
    raise QuerySyntax(f"The character {text[offset]!r} cannot be read here.", span=span_at(text, offset))


def _quantity(text: str, written: str, offset: int) -> Token:
    if len(written) <= _MOST_DIGITS:
        seconds = read_duration(written)
        if seconds is not None:
            return Token(Kind.DURATION, written, offset, seconds)
        size = read_bytes(written)
        if size is not None:
            return Token(Kind.BYTES, written, offset, size)
    raise QuerySyntax(
        f"{written[:_MOST_DIGITS]} is neither a duration nor a size.",
        hint="Write it as in 5m, 1h30m, 250ms, 20MB or 1.5KiB.",
        span=span_at(text, offset),
    )


def _quoted(text: str, offset: int) -> tuple[Token, int]:
    if text[offset] == "'":
        raise QuerySyntax(
            "A text stands in double quotes or backquotes.", hint='Write "…" or `…`.', span=span_at(text, offset)
        )
    found = (_RAW if text[offset] == "`" else _QUOTED).match(text, offset)
    if found is None:
        raise QuerySyntax("A quote is opened and never closed on its line.", span=span_at(text, offset))
    value = found[1] if text[offset] == "`" else _ESCAPE.sub(lambda match: _unescaped(match, text, offset), found[1])
    return Token(Kind.TEXT, value, offset), found.end()


def _unescaped(match: re.Match[str], text: str, offset: int) -> str:
    """Return the character of an escape in Go's notation."""
    kind, digits = match[1][:1], match[1][1:]
    if not digits:
        if kind not in _ESCAPED:
            raise QuerySyntax(
                f"The text has the escape \\{kind}, which does not exist.",
                hint="Write two backslashes, or put the text in backquotes.",
                span=span_at(text, offset + 1 + match.start()),
            )
        return _ESCAPED[kind]
    number = int(digits, 16) if kind in "xuU" else int(match[1], 8)
    is_character = number <= _LAST_CHARACTER and number not in _SURROGATES
    return chr(number) if is_character else "\ufffd"


MAX_DEPTH: Final = 20
# Stages, matchers, filters, labels and operands together.
MAX_PARTS: Final = 100
_SHOWN: Final = 60
_Fault = TypeVar("_Fault", bound=QueryFault)


class Cursor:
    """The tokens of a query and the position of the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = _tokens_of(text)
        self._position = 0
        self._depth = 0
        self._parts = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._position]

    @property
    def following(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._position + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.next
        self._position += token.kind is not Kind.END
        return token

    def is_symbol(self, *symbols: str) -> bool:
        return self.next.kind is Kind.SYMBOL and self.next.text in symbols

    def is_word(self, *words: str) -> bool:
        return self.next.kind is Kind.NAME and self.next.text in words

    def accept(self, symbol: str) -> bool:
        found = self.is_symbol(symbol)
        self._position += found
        return found

    def accept_word(self, word: str) -> bool:
        found = self.is_word(word)
        self._position += found
        return found

    def expect(self, symbol: str) -> Token:
        if not self.is_symbol(symbol):
            raise self.unexpected(symbol)
        return self.take()

    def expect_kind(self, kind: Kind, what: str) -> Token:
        if self.next.kind is not kind:
            raise self.unexpected(what)
        return self.take()

    def expect_end(self) -> None:
        if self.next.kind is not Kind.END:
            raise self.unexpected("the end of the query")

    def count_part(self) -> None:
        """Count one part of the query; raise QuerySyntax if it has too many."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise self.fault(f"The query has more than {MAX_PARTS} parts.", "Ask for less at once.")

    def descend(self) -> None:
        """Enter parentheses or a call; raise QuerySyntax if there are too many around it."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.fault("The query is nested too deeply.")

    def ascend(self) -> None:
        self._depth -= 1

    def unexpected(self, expected: str) -> QuerySyntax:
        found = self.next
        what = "The query ends" if found.kind is Kind.END else f"{self._written(found)} stands"
        return self.fault(f"{what} where {expected} is expected.")

    def fault(self, message: str, hint: str | None = None, offset: int | None = None) -> QuerySyntax:
        return self._with_place(QuerySyntax, message, hint, offset)

    def unsupported(self, message: str, hint: str | None = None, offset: int | None = None) -> QueryUnsupported:
        return self._with_place(QueryUnsupported, message, hint, offset)

    def _with_place(self, kind: type[_Fault], message: str, hint: str | None, offset: int | None) -> _Fault:
        place = self.next.offset if offset is None else offset
        return kind(message, hint=hint, span=span_at(self.text, place))

    def _written(self, token: Token) -> str:
        text = token.text[:_SHOWN]
        return f'"{text}"' if token.kind is Kind.TEXT else text
