"""The lexer of LogQL, which splits a query into tokens with positions, and the parsers of durations and sizes."""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeVar

import msgspec

from cordwood.errors import BadQuerySyntax, QueryFault, QueryUnsupported
from cordwood.sql.diagnostics import span_at
from cordwood.sql.internal_functions import BYTES_BY_SIZE_UNIT

MAX_QUERY_CHARACTERS: Final = 16 * 1024
MAX_QUERY_TOKENS: Final = 1500
MAX_NAME_CHARACTERS: Final = 200


class TokenKind(Enum):
    """The kind of a token. BYTES is a size with a unit, such as `20MB`; END follows the last token of a query."""

    NAME = auto()
    TEXT = auto()
    NUMBER = auto()
    DURATION = auto()
    BYTES = auto()
    SYMBOL = auto()
    END = auto()


class Token(msgspec.Struct, frozen=True):
    """A token of a query.

    `text` is the content of a quoted text; for tokens of other kinds, it is the token as written. `numeric_value` is
    the value of a number, of a duration (in seconds) or of a size (in bytes).
    """

    kind: TokenKind
    text: str
    text_offset: int
    numeric_value: float = 0.0

    @property
    def keyword(self) -> str:
        """The text of a name or a symbol as a keyword: LogQL's keywords are case-insensitive, labels are not."""
        return self.text.lower()


_WHITESPACE_OR_COMMENT_PATTERN: Final = re.compile(r"(?:\s|#[^\n]*)+")
_NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER_PATTERN: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.µμ])")
_QUANTITY_PATTERN: Final = re.compile(r"(?:\d+(?:\.\d+)?[A-Za-zµμ]+)+(?![\w.])")
_SYMBOL_PATTERN: Final = re.compile(r"\|=|\|~|\|>|!>|!=|!~|=~|==|>=|<=|--|[=<>|{}()\[\],+\-*/%^]")
_QUOTED_TEXT_PATTERN: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_RAW_TEXT_PATTERN: Final = re.compile(r"`([^`]*)`")
_ESCAPE_SEQUENCE_PATTERN: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL
)
_CHARACTER_BY_ESCAPE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
}
_MAX_NUMBER_DIGITS: Final = 30
_SURROGATE_CODE_POINTS: Final = range(0xD800, 0xE000)
_MAX_CODE_POINT: Final = 0x10FFFF


def _tokenize(text: str) -> list[Token]:
    """Return the tokens of the text and a final END token; raise BadQuerySyntax if it is too long or invalid."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise BadQuerySyntax(
            f"The query is longer than {MAX_QUERY_CHARACTERS} characters.", span=span_at(text, MAX_QUERY_CHARACTERS)
        )
    tokens: list[Token] = []
    offset = 0
    while True:
        skipped = _WHITESPACE_OR_COMMENT_PATTERN.match(text, offset)
        offset = skipped.end() if skipped else offset
        if offset >= len(text):
            tokens.append(Token(TokenKind.END, "", len(text)))
            return tokens
        if len(tokens) == MAX_QUERY_TOKENS:
            raise BadQuerySyntax(
                f"The query has more than {MAX_QUERY_TOKENS} words and signs.", span=span_at(text, offset)
            )
        token, offset = _token_at(text, offset)
        tokens.append(token)


def _token_at(text: str, offset: int) -> tuple[Token, int]:
    """Return the token at the offset, and the offset after the token."""
    if text[offset] in "\"`'":
        return _quoted_token(text, offset)
    name = _NAME_PATTERN.match(text, offset)
    if name and len(name[0]) > MAX_NAME_CHARACTERS:
        raise BadQuerySyntax(f"A name is longer than {MAX_NAME_CHARACTERS} characters.", span=span_at(text, offset))
    if name:
        return Token(TokenKind.NAME, name[0], offset), name.end()
    number = _NUMBER_PATTERN.match(text, offset)
    if number:
        if len(number[0]) > _MAX_NUMBER_DIGITS:
            raise BadQuerySyntax(f"A number has more than {_MAX_NUMBER_DIGITS} digits.", span=span_at(text, offset))
        return Token(TokenKind.NUMBER, number[0], offset, float(number[0])), number.end()
    quantity = _QUANTITY_PATTERN.match(text, offset)
    if quantity:
        return _quantity_token(text, quantity[0], offset), quantity.end()
    symbol = _SYMBOL_PATTERN.match(text, offset)
    if symbol:
        return Token(TokenKind.SYMBOL, symbol[0], offset), symbol.end()
    raise BadQuerySyntax(f"The character {text[offset]!r} cannot be read here.", span=span_at(text, offset))


def _quantity_token(text: str, written: str, offset: int) -> Token:
    if len(written) <= _MAX_NUMBER_DIGITS:
        seconds = read_duration_seconds(written)
        if seconds is not None:
            return Token(TokenKind.DURATION, written, offset, seconds)
        size = read_size_bytes(written)
        if size is not None:
            return Token(TokenKind.BYTES, written, offset, size)
    raise BadQuerySyntax(
        f"{written[:_MAX_NUMBER_DIGITS]} is neither a duration nor a size.",
        hint="Write it as in 5m, 1h30m, 250ms, 20MB or 1.5KiB.",
        span=span_at(text, offset),
    )


def _quoted_token(text: str, offset: int) -> tuple[Token, int]:
    if text[offset] == "'":
        raise BadQuerySyntax(
            "A text must be in double quotes or backquotes.", hint='Write "…" or `…`.', span=span_at(text, offset)
        )
    found = (_RAW_TEXT_PATTERN if text[offset] == "`" else _QUOTED_TEXT_PATTERN).match(text, offset)
    if found is None:
        raise BadQuerySyntax("A quote is opened and never closed on its line.", span=span_at(text, offset))
    value = (
        found[1]
        if text[offset] == "`"
        else _ESCAPE_SEQUENCE_PATTERN.sub(lambda match: _decode_escape_sequence(match, text, offset), found[1])
    )
    return Token(TokenKind.TEXT, value, offset), found.end()


def _decode_escape_sequence(match: re.Match[str], text: str, offset: int) -> str:
    """Return the character that an escape sequence in Go's notation represents."""
    kind, digits = match[1][:1], match[1][1:]
    if not digits:
        if kind not in _CHARACTER_BY_ESCAPE:
            raise BadQuerySyntax(
                f"The text has the escape \\{kind}, which does not exist.",
                hint="Write two backslashes, or put the text in backquotes.",
                span=span_at(text, offset + 1 + match.start()),
            )
        return _CHARACTER_BY_ESCAPE[kind]
    number = int(digits, 16) if kind in "xuU" else int(match[1], 8)
    is_character = number <= _MAX_CODE_POINT and number not in _SURROGATE_CODE_POINTS
    return chr(number) if is_character else "\ufffd"


MAX_NESTING_DEPTH: Final = 20
# The maximum number of stages, matchers, filters, labels and operands of a query, all counted together.
MAX_QUERY_PARTS: Final = 100
_MAX_SHOWN_TOKEN_CHARACTERS: Final = 60
_AnyFault = TypeVar("_AnyFault", bound=QueryFault)


class TokenCursor:
    """A cursor over the tokens of a query."""

    def __init__(self, text: str) -> None:
        self.query_text = text
        self._tokens = _tokenize(text)
        self._next_token_index = 0
        self._nesting_depth = 0
        self._query_part_count = 0

    @property
    def next_token(self) -> Token:
        return self._tokens[self._next_token_index]

    @property
    def second_next_token(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._next_token_index + 1, len(self._tokens) - 1)]

    def take_token(self) -> Token:
        token = self.next_token
        self._next_token_index += token.kind is not TokenKind.END
        return token

    def next_is_symbol(self, *symbols: str) -> bool:
        return self.next_token.kind is TokenKind.SYMBOL and self.next_token.text in symbols

    def next_is_word(self, *words: str) -> bool:
        """Return whether the next token is one of the keywords `words`, which are in lower case."""
        return self.next_token.kind is TokenKind.NAME and self.next_token.keyword in words

    def accept_symbol(self, symbol: str) -> bool:
        found = self.next_is_symbol(symbol)
        self._next_token_index += found
        return found

    def accept_word(self, word: str) -> bool:
        found = self.next_is_word(word)
        self._next_token_index += found
        return found

    def expect_symbol(self, symbol: str) -> Token:
        if not self.next_is_symbol(symbol):
            raise self.unexpected_token_error(symbol)
        return self.take_token()

    def expect_kind(self, kind: TokenKind, what: str) -> Token:
        if self.next_token.kind is not kind:
            raise self.unexpected_token_error(what)
        return self.take_token()

    def expect_end(self) -> None:
        if self.next_token.kind is not TokenKind.END:
            raise self.unexpected_token_error("the end of the query")

    def count_query_part(self) -> None:
        """Count a stage, matcher, filter, label or operand; raise BadQuerySyntax if the query has too many of them."""
        self._query_part_count += 1
        if self._query_part_count > MAX_QUERY_PARTS:
            raise self.syntax_error(f"The query has more than {MAX_QUERY_PARTS} parts.", "Ask for less at once.")

    def enter_nesting(self) -> None:
        """Increase the nesting depth at parentheses or a call; raise BadQuerySyntax if it becomes too large."""
        self._nesting_depth += 1
        if self._nesting_depth > MAX_NESTING_DEPTH:
            raise self.syntax_error("The query is nested too deeply.")

    def leave_nesting(self) -> None:
        self._nesting_depth -= 1

    def unexpected_token_error(self, expected: str) -> BadQuerySyntax:
        found = self.next_token
        what = "The query ends" if found.kind is TokenKind.END else f"{self._shown_token(found)} stands"
        return self.syntax_error(f"{what} where {expected} is expected.")

    def syntax_error(self, message: str, hint: str | None = None, offset: int | None = None) -> BadQuerySyntax:
        return self._error_at(BadQuerySyntax, message, hint, offset)

    def unsupported_error(self, message: str, hint: str | None = None, offset: int | None = None) -> QueryUnsupported:
        return self._error_at(QueryUnsupported, message, hint, offset)

    def _error_at(self, kind: type[_AnyFault], message: str, hint: str | None, offset: int | None) -> _AnyFault:
        place = self.next_token.text_offset if offset is None else offset
        return kind(message, hint=hint, span=span_at(self.query_text, place))

    def _shown_token(self, token: Token) -> str:
        text = token.text[:_MAX_SHOWN_TOKEN_CHARACTERS]
        return f'"{text}"' if token.kind is TokenKind.TEXT else text


# The number of seconds in each unit of a duration: Go's units up to hours, and Prometheus's days, weeks and years.
SECONDS_PER_UNIT: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 7 * 86_400.0,
    "y": 365 * 86_400.0,
}
_DURATION_PART_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h|d|w|y)")
_DURATION_PATTERN: Final = re.compile(rf"(?:{_DURATION_PART_PATTERN.pattern})+")
_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]+)")


def read_duration_seconds(text: str) -> float | None:
    """Convert a duration such as `1h30m` to seconds; return None if the text is not a duration."""
    if not _DURATION_PATTERN.fullmatch(text):
        return None
    return sum(float(part[1]) * SECONDS_PER_UNIT[part[2]] for part in _DURATION_PART_PATTERN.finditer(text))


def read_size_bytes(text: str) -> float | None:
    """Convert a size such as `20MB` to bytes; return None if the text is not a size with a known unit."""
    match = _SIZE_PATTERN.fullmatch(text)
    unit = BYTES_BY_SIZE_UNIT.get(match[2].lower()) if match else None
    return None if match is None or unit is None else float(match[1]) * unit
