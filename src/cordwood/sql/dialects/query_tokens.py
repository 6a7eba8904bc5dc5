"""A query's text as tokens with positions, used to find the operands around a token."""

import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

_BIGQUERY_DIALECT = Dialect.get_or_raise("bigquery")
_TEXT_LITERAL_TOKEN_TYPES = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_WORD_PATTERN = re.compile(r"\S+")
_OPENING_BRACKET_BY_CLOSING = {")": "(", "]": "["}
_NON_OPERAND_KEYWORDS = frozenset(
    """
    SELECT FROM WHERE AND OR NOT ON IN IS AS BY HAVING QUALIFY LIMIT OFFSET CASE WHEN THEN ELSE JOIN UNION ALL LIKE
    BETWEEN DISTINCT INTERVAL OVER WITH USING GROUP ORDER END
""".split()
)


class QueryToken(msgspec.Struct, frozen=True):
    """A token of a query: its text in upper case (a literal's text with its quotes), its kind and its position."""

    text: str
    kind: TokenType
    start: int
    end: int

    @property
    def is_text_literal(self) -> bool:
        return self.kind in _TEXT_LITERAL_TOKEN_TYPES

    @property
    def is_number(self) -> bool:
        return self.kind == TokenType.NUMBER

    @property
    def is_name(self) -> bool:
        if self.kind == TokenType.IDENTIFIER:
            return True
        return (
            not self.is_text_literal
            and self.text.replace("_", "a").isalnum()
            and self.text not in _NON_OPERAND_KEYWORDS
        )


class QueryTokens:
    """The tokens of a query; there are none if the text cannot be tokenized."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tuple(_split_tokens(text))
        self._matching_brackets = _counterpart_index_by_bracket(self.tokens)

    def text_between(self, first: int, last: int) -> str:
        """Return the query's text from the token at index `first` to the token at index `last`, both included."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def find_closing_bracket(self, opened: int) -> int | None:
        return self._matching_brackets.get(opened)

    def operand_before(self, index: int) -> str | None:
        """Return the name, call or literal that ends directly before the token at this index."""
        last = first = index - 1
        while first >= 0:
            if self.tokens[first].text in _OPENING_BRACKET_BY_CLOSING:
                first = self._matching_brackets.get(first, first)
                first -= first > 0 and self.tokens[first - 1].is_name
            if first < 2 or self.tokens[first - 1].text != ".":
                break
            first -= 2
        return self.text_between(first, last) if 0 <= first <= last and self._may_start_operand(first) else None

    def operand_after(self, index: int) -> str | None:
        """Return the name, call or literal that begins directly after the token at this index."""
        first = last = index + 1
        while last < len(self.tokens):
            if self.tokens[last].text == "(":
                last = self._matching_brackets.get(last, last)
            elif self._has_text(last + 1, "(") and self.tokens[last].is_name:
                last = self._matching_brackets.get(last + 1, last)
            if not self._has_text(last + 1, "."):
                break
            last += 2
        if first >= len(self.tokens) or last >= len(self.tokens):
            return None
        return self.text_between(first, last) if self._may_start_operand(first) else None

    def call_arguments(self, opened: int) -> list[str]:
        """Return the texts of the arguments of a call whose parenthesis opens at the token `opened`."""
        closed = self._matching_brackets.get(opened)
        if closed is None or closed == opened + 1:
            return []
        commas = [opened, *self._find_commas(opened, closed), closed]
        return [self.text_between(a + 1, b - 1) for a, b in pairwise(commas) if b > a + 1]

    def text_inside_brackets(self, index: int) -> str | None:
        """Return the text after the token at `index`, up to the end of the brackets around that token.

        Return None if there is no closing bracket or no text before it.
        """
        depth = 0
        for position in range(index + 1, len(self.tokens)):
            depth += (self.tokens[position].text in "([") - (self.tokens[position].text in ")]")
            if depth < 0:
                return self.text_between(index + 1, position - 1) if position > index + 1 else None
        return None

    def _find_commas(self, opened: int, closed: int) -> Iterator[int]:
        index = opened + 1
        while index < closed:
            if self.tokens[index].text == ",":
                yield index
            index = self._matching_brackets.get(index, index) if self.tokens[index].text in "([" else index
            index += 1

    def _may_start_operand(self, first: int) -> bool:
        word = self.tokens[first]
        return word.is_name or word.is_text_literal or word.is_number or word.text in ("(", "@", "[")

    def _has_text(self, index: int, text: str) -> bool:
        return index < len(self.tokens) and self.tokens[index].text == text


def _split_tokens(text: str) -> Iterator[QueryToken]:
    try:
        tokens = _BIGQUERY_DIALECT.tokenize(text)
    except TokenError:
        return
    for token in tokens:
        source_text = text[token.start : token.end + 1]
        if " " in token.text and source_text[:1].isalpha() and token.token_type not in _TEXT_LITERAL_TOKEN_TYPES:
            # The tokenizer yields ORDER BY and WITHIN GROUP as single tokens, so split them into words.
            for part in _WORD_PATTERN.finditer(source_text):
                yield QueryToken(
                    part[0].upper(), token.token_type, token.start + part.start(), token.start + part.end()
                )
        else:
            word_text = source_text if token.token_type in _TEXT_LITERAL_TOKEN_TYPES else token.text
            yield QueryToken(word_text.upper(), token.token_type, token.start, token.end + 1)


def _counterpart_index_by_bracket(words: tuple[QueryToken, ...]) -> dict[int, int]:
    """Map the index of each parenthesis and bracket to the index of its counterpart."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if word.is_text_literal or word.kind == TokenType.IDENTIFIER:
            continue
        if word.text in ("(", "["):
            opened.append(index)
        elif (
            word.text in _OPENING_BRACKET_BY_CLOSING
            and opened
            and words[opened[-1]].text == _OPENING_BRACKET_BY_CLOSING[word.text]
        ):
            opening = opened.pop()
            pairs[opening], pairs[index] = index, opening
    return pairs
