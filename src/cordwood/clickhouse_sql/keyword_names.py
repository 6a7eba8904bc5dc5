"""Keywords as names of columns, which ClickHouse accepts, as in `SELECT id AS where FROM logs ORDER BY where`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

_CLAUSE_KEYWORDS: Final = frozenset(
    {
        TokenType.FORMAT,
        TokenType.HAVING,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.PREWHERE,
        TokenType.SETTINGS,
        TokenType.UNION,
        TokenType.WHERE,
    }
)
# After one of these tokens, an expression begins, and no clause can begin.
_TOKENS_BEFORE_EXPRESSIONS: Final = frozenset(
    {
        TokenType.AND,
        TokenType.COMMA,
        TokenType.DASH,
        TokenType.DISTINCT,
        TokenType.DOT,
        TokenType.DPIPE,
        TokenType.EQ,
        TokenType.GROUP_BY,
        TokenType.GT,
        TokenType.GTE,
        TokenType.HAVING,
        TokenType.LT,
        TokenType.LTE,
        TokenType.L_BRACKET,
        TokenType.L_PAREN,
        TokenType.NEQ,
        TokenType.NOT,
        TokenType.OR,
        TokenType.ORDER_BY,
        TokenType.PLUS,
        TokenType.SELECT,
        TokenType.SLASH,
        TokenType.WHERE,
    }
)


def read_aliases_as_names(tokens: Sequence[Token]) -> None:
    """Make each keyword that is the alias of a column a name where an expression begins; mutates the tokens."""
    aliases = {
        token.text
        for before, token in pairwise(tokens)
        if before.token_type == TokenType.ALIAS and token.token_type in _CLAUSE_KEYWORDS
    }
    for before, token in pairwise(tokens) if aliases else ():
        begins_expression = before.token_type in _TOKENS_BEFORE_EXPRESSIONS
        if begins_expression and token.token_type in _CLAUSE_KEYWORDS and token.text in aliases:
            token.token_type = TokenType.VAR
