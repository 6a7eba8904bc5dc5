"""The lexer of LogQL: the text as tokens, each with its position."""

import re
from enum import Enum, auto
from typing import Final

import msgspec

from cordwood.errors import QuerySyntax
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


def tokens_of(text: str) -> list[Token]:
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
