"""The parser of ClickHouse SQL: one query, within the limits of `sql/parse.py`."""

from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QueryRefused, QuerySyntax, Span
from cordwood.sql.parse import (
    check_beginning,
    check_characters,
    check_depth,
    check_work,
    nesting_error,
    syntax_fault,
    tokenizer_fault,
)
from cordwood.sql.positions import span_at
from cordwood.sql.stages import Parsed

_CLICKHOUSE_DIALECT: Final = Dialect.get_or_raise("clickhouse")
# sqlglot parses parentheses after a type's name twice, and after FROM as a join and as a query.
_WORDS_PARSED_TWICE: Final = frozenset(
    [
        *(
            word.lower()
            for word, kind in _CLICKHOUSE_DIALECT.tokenizer_class.KEYWORDS.items()
            if kind in _CLICKHOUSE_DIALECT.parser_class.TYPE_TOKENS
        ),
        *("cast", "extract", "from", "interval"),
    ]
)


def parse(text: str) -> Parsed:
    """Parse a text with a single statement; raise QuerySyntax or QueryRefused with the position."""
    check_characters(text)
    tokens = _tokenize(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise QuerySyntax("The query is empty.", hint="Send one SELECT.", span=Span(1, 1))
    check_beginning(tokens[0], text)
    check_work(tokens, text, _WORDS_PARSED_TWICE)
    second = next((token for token in tokens if token.token_type == TokenType.SEMICOLON), None)
    if second is not None:
        raise QueryRefused("Only one statement can be sent.", hint="Send one SELECT.", span=span_at(text, second.start))
    tree = _parse_tokens(tokens, text)
    check_depth(tree)
    return Parsed(tree, text)


def _tokenize(text: str) -> list[Token]:
    try:
        tokens: list[Token] = _CLICKHOUSE_DIALECT.tokenize(text)
    except TokenError as error:
        raise tokenizer_fault(error, text) from error
    return tokens


def _parse_tokens(tokens: list[Token], text: str) -> exp.Expr:
    try:
        trees = [tree for tree in _CLICKHOUSE_DIALECT.parser().parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise syntax_fault(error) from error
    except RecursionError as error:
        raise nesting_error(None) from error
    except Exception as error:
        raise QuerySyntax("The text cannot be read as SQL.", span=Span(1, 1)) from error
    if len(trees) != 1:
        raise QuerySyntax("The text cannot be read as SQL.", span=Span(1, 1))
    return trees[0]
