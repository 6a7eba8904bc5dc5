"""Literals: integers of any length, and checks for doubled quotes, invalid escapes, and numbers out of range."""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QuerySyntax
from cordwood.sql.positions import span_at

_SHARED_ESCAPES: Final = r"""[abfnrtv\\?"'`]|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}"""
_TEXT_ESCAPES: Final = r"u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U(?!0000[dD][89a-fA-F])00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}"
_VALID_ESCAPES: Final = {
    TokenType.STRING: re.compile(f"{_SHARED_ESCAPES}|{_TEXT_ESCAPES}"),
    TokenType.BYTE_STRING: re.compile(_SHARED_ESCAPES),
}
_MIN_CHECKED_DIGITS: Final = len(str(2**63))
_ESCAPE: Final = re.compile(r"\\.?", re.DOTALL)


# Comments, quoted names and prefixed literals are skipped; the group is a literal that may contain doubled quotes. An
# unterminated quote or comment extends to the end of the text, so that scanning takes linear time.
_QUOTED: Final = re.compile(
    r"""(?:--|\#)[^\n]*|/\*.*?(?:\*/|\Z)|`[^`]*(?:`|\Z)|\b(?:r|b|rb|br)(?:'[^'\n]*'|"[^"\n]*")"""
    r"""|('(?:''|\\.|[^'\\])*+'|"(?:""|\\.|[^"\\])*+")|['"].*\Z""",
    re.DOTALL | re.IGNORECASE,
)


def escape_doubled_quotes(text: str) -> str:
    """Replace each doubled quote inside a literal by an escaped one; positions in the text do not change.

    Only for a text that cannot be parsed otherwise, because three quotes in a row begin a literal in BigQuery.
    """
    return _QUOTED.sub(lambda match: _escape_doubled(match[1]) if match[1] else match[0], text)


def _escape_doubled(literal: str) -> str:
    quote = literal[0]
    inside = re.sub(
        rf"\\.|{quote}{quote}", lambda match: match[0].replace(quote * 2, f"\\{quote}"), literal[1:-1], flags=re.DOTALL
    )
    return f"{quote}{inside}{quote}"


def join_doubled_quotes(tokens: list[Token], text: str) -> list[Token]:
    """Join adjacent literals into one with a quote between them: `'it''s'` is the text it's.

    BigQuery refuses adjacent literals without a space, so no valid query changes its meaning. Clients that quote as
    other databases do double the quotes in their users' input.
    """
    joined: list[Token] = []
    run: list[Token] = []
    for token in tokens:
        if run and not _are_adjacent(run[-1], token, text):
            joined.append(_merge_run(run, text))
            run = []
        run.append(token)
    return [*joined, _merge_run(run, text)] if run else joined


def _merge_run(run: Sequence[Token], text: str) -> Token:
    """Merge the tokens into the first of them."""
    first, last = run[0], run[-1]
    if first is not last:
        first.text = text[first.start].join(token.text for token in run)
        first.end, first.line, first.col = last.end, last.line, last.col
    return first


def _are_adjacent(left: Token, right: Token, text: str) -> bool:
    if not (left.token_type == right.token_type == TokenType.STRING and right.start == left.end + 1):
        return False
    quote = text[left.start]
    return text[right.start] == quote and not (
        text.startswith(quote * 3, left.start) or text.startswith(quote * 3, right.start)
    )


def check_literals(tokens: list[Token], text: str) -> None:
    for index, token in enumerate(tokens):
        valid_escapes = _VALID_ESCAPES.get(token.token_type)
        if valid_escapes is not None:
            _check_escapes(valid_escapes, token, text)
        elif token.token_type in _NUMBERS and len(token.text) >= _MIN_CHECKED_DIGITS:
            _check_number_range(token, text, is_negative=tokens[index - 1].token_type == TokenType.DASH)


def _check_number_range(token: Token, text: str, *, is_negative: bool) -> None:
    is_hexadecimal = token.token_type == TokenType.HEX_STRING
    if is_hexadecimal and len(token.text.lstrip("0")) > _MAX_HEX_DIGITS:
        raise QuerySyntax(f"Invalid integer literal: 0x{token.text[:40]}", span=span_at(text, token.start))
    if token.text.isdecimal() and not is_hexadecimal and parse_digits(token.text) >= 2**63 + is_negative:
        raise QuerySyntax(f"Invalid integer literal: {token.text[:40]}", span=span_at(text, token.start))
    if len(token.text) > _MAX_NUMBER_DIGITS:
        raise QuerySyntax(f"Invalid number of more than {_MAX_NUMBER_DIGITS} digits", span=span_at(text, token.start))


_NUMBERS: Final = frozenset({TokenType.NUMBER, TokenType.HEX_STRING})
# The number of hexadecimal digits of 64 bits.
_MAX_HEX_DIGITS: Final = 16
_MAX_NUMBER_DIGITS: Final = 1_000


def _check_escapes(valid_escapes: re.Pattern[str], token: Token, text: str) -> None:
    for escape in _ESCAPE.finditer(text, token.start, token.end + 1):
        if not valid_escapes.match(text, escape.start() + 1):
            raise QuerySyntax(f"Illegal escape sequence: {escape[0]}", span=span_at(text, escape.start()))


# More digits than any engine's integers have, and fewer than Python refuses.
_MAX_DIGITS: Final = 100


def parse_digits(digits: str) -> int:
    """Return the number that decimal digits spell; for more than a hundred digits, the least number of that length."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
