"""Rewrites of tokens for BigQuery syntax that sqlglot's parser misreads."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.sql.budget import copied

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_ACCESSORS: Final = frozenset({TokenType.DOT, TokenType.L_BRACKET})
_ROOT: Final = "$"


def rewrite_tokens(tokens: list[Token]) -> list[Token]:
    """Parenthesise the value of `JSON '…'.a` and `SAFE.F(…)[0]`; complete JSON_QUERY(x) and JSON_OBJECT(…)."""
    _mark_raw_strings(tokens)
    inserted = dict(_insertions(tokens))
    if not inserted:
        return tokens
    cleared = [
        inserted_token for index, token in enumerate(tokens) for inserted_token in (*inserted.get(index, ()), token)
    ]
    return [*cleared, *inserted.get(len(tokens), ())]


def _mark_raw_strings(tokens: list[Token]) -> None:
    """Turn JSON paths and time formats into raw strings, because the parser changes them and drops empty ones."""
    openers: list[str] = []
    for previous, token in pairwise(tokens):
        if token.token_type == TokenType.L_PAREN:
            openers.append(previous.text.lower())
        elif token.token_type == TokenType.R_PAREN:
            del openers[-1:]
        elif token.token_type == TokenType.STRING and openers and _is_raw_string(token, openers[-1], previous):
            token.token_type = TokenType.RAW_STRING


def _is_raw_string(token: Token, function: str, previous: Token) -> bool:
    if function in _PATH_FUNCTIONS:
        return previous.token_type == TokenType.COMMA
    return function in _FORMAT_FUNCTIONS and not token.text


_PATH_FUNCTIONS: Final = frozenset(
    [
        "json_extract",
        "json_extract_array",
        "json_extract_scalar",
        "json_extract_string_array",
        "json_query",
        "json_query_array",
        "json_value",
        "json_value_array",
    ]
)

_FORMAT_FUNCTIONS: Final = frozenset(
    f"{verb}_{kind}" for verb in ("format", "parse") for kind in ("date", "datetime", "time", "timestamp")
)


def _insertions(tokens: list[Token]) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Yield the tokens to insert, with the index of the token before which they go."""
    for index, (token, following) in enumerate(pairwise(tokens)):
        yield from _insertions_at(tokens, index, token, following)


def _insertions_at(
    tokens: list[Token], index: int, token: Token, following: Token
) -> Iterator[tuple[int, tuple[Token, ...]]]:
    word = token.text.lower()
    if token.token_type == TokenType.JSON and following.token_type == TokenType.STRING:
        yield from _parenthesise(tokens, index, index + 1)
    elif word == "safe" and _is_safe_call(tokens, index):
        yield from _parenthesise(tokens, index, _find_closing(tokens, index + 3))
    elif word in _TOKEN_INSERTERS and _is_call(tokens, index):
        yield from _TOKEN_INSERTERS[word](tokens, index + 1)
    elif word == "all":
        yield from _parenthesise_unnest(tokens, index + 1, following)


def _is_safe_call(tokens: list[Token], index: int) -> bool:
    return tokens[index + 1].token_type == TokenType.DOT and _is_call(tokens, index + 2)


def _parenthesise_unnest(tokens: list[Token], index: int, token: Token) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise UNNEST(…) after a quantifier: the parser reads `ALL UNNEST(…)` only so."""
    if token.token_type == TokenType.UNNEST and _is_call(tokens, index):
        yield index, (_token_at(token, TokenType.L_PAREN, "("),)
        yield _find_closing(tokens, index + 1) + 1, (_token_at(token, TokenType.R_PAREN, ")"),)


def strip_quantifier_parentheses(tree: exp.Expr) -> None:
    """Remove the parentheses that were inserted into `LIKE ALL UNNEST(…)`."""
    for quantifier in tree.find_all(exp.Any, exp.All):
        if isinstance(quantifier.this, exp.Paren) and isinstance(quantifier.this.this, exp.Unnest):
            quantifier.set("this", quantifier.this.this)


def _is_call(tokens: list[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN


def _parenthesise(tokens: list[Token], first: int, last: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    if last + 1 < len(tokens) and tokens[last + 1].token_type in _ACCESSORS:
        yield first, (_token_at(tokens[first], TokenType.L_PAREN, "("),)
        yield last + 1, (_token_at(tokens[last], TokenType.R_PAREN, ")"),)


def _add_default_path(tokens: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    closed = _find_closing(tokens, opened)
    depth = 0
    for token in tokens[opened:closed]:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 1 and token.token_type == TokenType.COMMA:
            return
    if opened + 1 < closed < len(tokens):
        end = tokens[closed]
        yield closed, (_token_at(end, TokenType.COMMA, ","), _token_at(end, TokenType.STRING, _ROOT))


def _fix_json_object(tokens: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    is_array = tokens[opened + 1].token_type in _ARRAYS
    yield from _parenthesise_keys(tokens, opened) if is_array else _parenthesise_names(tokens, opened)


def _parenthesise_keys(tokens: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise the keys of JSON_OBJECT(keys, values), which the parser would zip to pairs, dropping the excess."""
    depth = 0
    for index in range(opened, _find_closing(tokens, opened)):
        token = tokens[index]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 1 and token.token_type == TokenType.COMMA:
            yield opened + 1, (_token_at(tokens[opened], TokenType.L_PAREN, "("),)
            yield index, (_token_at(token, TokenType.R_PAREN, ")"),)
            return


def _parenthesise_names(tokens: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise columns named `key` and `value`, which the parser takes for keywords and drops."""
    depth = 0
    for index in range(opened, _find_closing(tokens, opened)):
        token = tokens[index]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        is_whole_argument = (
            tokens[index - 1].token_type in _ARGUMENT_DELIMITERS
            and tokens[index + 1].token_type in _ARGUMENT_DELIMITERS
        )
        if (
            depth == 1
            and is_whole_argument
            and token.text.lower() in _DROPPED_NAMES
            and token.token_type != TokenType.STRING
        ):
            yield index, (_token_at(token, TokenType.L_PAREN, "("),)
            yield index + 1, (_token_at(token, TokenType.R_PAREN, ")"),)


_DROPPED_NAMES: Final = frozenset(["key", "value"])
_ARRAYS: Final = frozenset({TokenType.L_BRACKET, TokenType.ARRAY})
_ARGUMENT_DELIMITERS: Final = frozenset({TokenType.L_PAREN, TokenType.COMMA, TokenType.R_PAREN})


# Functions whose arguments need additional tokens, and what inserts them.
_TOKEN_INSERTERS: Final = {"json_query": _add_default_path, "json_object": _fix_json_object}


def _find_closing(tokens: list[Token], opened: int) -> int:
    """Return where the parenthesis that opens at this token closes; past the end if it does not."""
    depth = 0
    for index in range(opened, len(tokens)):
        depth += (tokens[index].token_type in _OPENING) - (tokens[index].token_type in _CLOSING)
        if depth == 0:
            return index
    return len(tokens)


def _token_at(token: Token, kind: TokenType, text: str) -> Token:
    """Return a token at the position of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def set_offset_kinds(tree: exp.Expr) -> None:
    """Set the offset kind of nested subscripts.

    In `a[OFFSET(0)][OFFSET(1)]` the parser recognises only the last OFFSET, and reads the others as functions.
    """
    for bracket in tree.find_all(exp.Bracket):
        index = bracket.expressions[0] if len(bracket.expressions) == 1 else None
        if isinstance(index, exp.Anonymous) and len(index.expressions) == 1:
            tokens = _OFFSETS.get(str(index.this).upper())
            if tokens is not None:
                bracket.set("offset", tokens[0])
                bracket.set("safe", tokens[1])
                index.replace(index.expressions[0])


# The index of the first element, and whether an index out of range yields NULL.
_OFFSETS: Final = {"OFFSET": (0, False), "ORDINAL": (1, False), "SAFE_OFFSET": (0, True), "SAFE_ORDINAL": (1, True)}


def name_unnested_paths(tree: exp.Expr) -> None:
    """Name an implicitly unnested array (`FROM t, t.items`) after the last part of its path."""
    for unnest in tree.find_all(exp.Unnest):
        # The parser stores `offset` for a written UNNEST(), but not for one that it inserts.
        if isinstance(unnest.parent, exp.Join) and "offset" not in unnest.args and unnest.args.get("alias") is None:
            path = unnest.expressions[0]
            last = path.expression if isinstance(path, exp.Dot) else path.this
            unnest.set("alias", exp.TableAlias(columns=[copied(last)]))
