"""A position in the tokens of a query, with the limits on what a query may have."""

from typing import Final, TypeVar

from cordwood.errors import QueryFault, QuerySyntax, QueryUnsupported
from cordwood.logql.lexer import Kind, Token, tokens_of
from cordwood.sql.positions import span_at

MAX_DEPTH: Final = 20
# Stages, matchers, filters, labels and operands together.
MAX_PARTS: Final = 100

_SHOWN: Final = 60

_Fault = TypeVar("_Fault", bound=QueryFault)


class Cursor:
    """The tokens of a query and the position of the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens_of(text)
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
