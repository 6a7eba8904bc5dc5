"""Literals that BigQuery knows not: escapes that the parser takes for the letter behind them, and numbers too wide."""

import re
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QuerySyntax
from cordwood.sql.places import span_at

_EITHER: Final = r"""[abfnrtv\\?"'`]|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}"""
_OF_TEXT: Final = r"u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U(?!0000[dD][89a-fA-F])00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}"
_LEGAL: Final = {
    TokenType.STRING: re.compile(f"{_EITHER}|{_OF_TEXT}"),
    TokenType.BYTE_STRING: re.compile(_EITHER),
}
_FEWEST_WIDE: Final = len(str(2**63))
_ESCAPE: Final = re.compile(r"\\.?", re.DOTALL)


def check_literals(found: list[Token], text: str) -> None:
    for at, token in enumerate(found):
        legal = _LEGAL.get(token.token_type)
        if legal is not None:
            _check_escapes(legal, token, text)
        elif token.token_type == TokenType.NUMBER and len(token.text) >= _FEWEST_WIDE:
            _check_width(token, text, is_negative=found[at - 1].token_type == TokenType.DASH)


def _check_width(token: Token, text: str, *, is_negative: bool) -> None:
    if token.text.isdigit() and int(token.text) >= 2**63 + is_negative:
        raise QuerySyntax(f"Invalid integer literal: {token.text}", span=span_at(text, token.start))


def _check_escapes(legal: re.Pattern[str], token: Token, text: str) -> None:
    for escape in _ESCAPE.finditer(text, token.start, token.end + 1):
        if not legal.match(text, escape.start() + 1):
            raise QuerySyntax(f"Illegal escape sequence: {escape[0]}", span=span_at(text, escape.start()))
