"""Rewrites of tokens for BigQuery syntax that sqlglot's parser misreads."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.sql.budget import copied

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_STEPS: Final = frozenset({TokenType.DOT, TokenType.L_BRACKET})
_ROOT: Final = "$"


def clear_forms(found: list[Token]) -> list[Token]:
    """Parenthesise the value of `JSON '…'.a` and `SAFE.F(…)[0]`; complete JSON_QUERY(x) and JSON_OBJECT(…)."""
    _keep_paths(found)
    inserted = dict(_insertions(found))
    if not inserted:
        return found
    cleared = [part for at, token in enumerate(found) for part in (*inserted.get(at, ()), token)]
    return [*cleared, *inserted.get(len(found), ())]


def _keep_paths(found: list[Token]) -> None:
    """Turn JSON paths and time formats into raw strings, because the parser changes them and drops empty ones."""
    openers: list[str] = []
    for before, token in pairwise(found):
        if token.token_type == TokenType.L_PAREN:
            openers.append(before.text.lower())
        elif token.token_type == TokenType.R_PAREN:
            del openers[-1:]
        elif token.token_type == TokenType.STRING and openers and _is_kept(token, openers[-1], before):
            token.token_type = TokenType.RAW_STRING


def _is_kept(token: Token, function: str, before: Token) -> bool:
    if function in _OF_PATHS:
        return before.token_type == TokenType.COMMA
    return function in _OF_FORMATS and not token.text


_OF_PATHS: Final = frozenset(
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

_OF_FORMATS: Final = frozenset(
    f"{verb}_{kind}" for verb in ("format", "parse") for kind in ("date", "datetime", "time", "timestamp")
)


def _insertions(found: list[Token]) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Yield the tokens to insert, with the index of the token before which they go."""
    for at, (token, following) in enumerate(pairwise(found)):
        yield from _insertions_at(found, at, token, following)


def _insertions_at(
    found: list[Token], at: int, token: Token, following: Token
) -> Iterator[tuple[int, tuple[Token, ...]]]:
    word = token.text.lower()
    if token.token_type == TokenType.JSON and following.token_type == TokenType.STRING:
        yield from _in_brackets(found, at, at + 1)
    elif word == "safe" and _is_safe_call(found, at):
        yield from _in_brackets(found, at, _closing(found, at + 3))
    elif word in _CALLS and _is_call(found, at):
        yield from _CALLS[word](found, at + 1)
    elif word == "all":
        yield from _of_array(found, at + 1, following)


def _is_safe_call(found: list[Token], at: int) -> bool:
    return found[at + 1].token_type == TokenType.DOT and _is_call(found, at + 2)


def _of_array(found: list[Token], at: int, token: Token) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise UNNEST(…) after a quantifier: the parser reads `ALL UNNEST(…)` only so."""
    if token.token_type == TokenType.UNNEST and _is_call(found, at):
        yield at, (_like(token, TokenType.L_PAREN, "("),)
        yield _closing(found, at + 1) + 1, (_like(token, TokenType.R_PAREN, ")"),)


def clear_quantifiers(tree: exp.Expr) -> None:
    """Remove the parentheses that were inserted into `LIKE ALL UNNEST(…)`."""
    for quantifier in tree.find_all(exp.Any, exp.All):
        if isinstance(quantifier.this, exp.Paren) and isinstance(quantifier.this.this, exp.Unnest):
            quantifier.set("this", quantifier.this.this)


def _is_call(found: list[Token], at: int) -> bool:
    return at + 1 < len(found) and found[at + 1].token_type == TokenType.L_PAREN


def _in_brackets(found: list[Token], first: int, last: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    if last + 1 < len(found) and found[last + 1].token_type in _STEPS:
        yield first, (_like(found[first], TokenType.L_PAREN, "("),)
        yield last + 1, (_like(found[last], TokenType.R_PAREN, ")"),)


def _with_path(found: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    closed = _closing(found, opened)
    depth = 0
    for token in found[opened:closed]:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 1 and token.token_type == TokenType.COMMA:
            return
    if opened + 1 < closed < len(found):
        end = found[closed]
        yield closed, (_like(end, TokenType.COMMA, ","), _like(end, TokenType.STRING, _ROOT))


def _with_keys(found: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    is_array = found[opened + 1].token_type in _ARRAYS
    yield from _with_array(found, opened) if is_array else _with_names(found, opened)


def _with_array(found: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise the keys of JSON_OBJECT(keys, values), which the parser would zip to pairs, dropping the excess."""
    depth = 0
    for at in range(opened, _closing(found, opened)):
        token = found[at]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 1 and token.token_type == TokenType.COMMA:
            yield opened + 1, (_like(found[opened], TokenType.L_PAREN, "("),)
            yield at, (_like(token, TokenType.R_PAREN, ")"),)
            return


def _with_names(found: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise columns named `key` and `value`, which the parser takes for keywords and drops."""
    depth = 0
    for at in range(opened, _closing(found, opened)):
        token = found[at]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        stands_alone = found[at - 1].token_type in _BETWEEN and found[at + 1].token_type in _BETWEEN
        if depth == 1 and stands_alone and token.text.lower() in _LOST and token.token_type != TokenType.STRING:
            yield at, (_like(token, TokenType.L_PAREN, "("),)
            yield at + 1, (_like(token, TokenType.R_PAREN, ")"),)


_LOST: Final = frozenset(["key", "value"])
_ARRAYS: Final = frozenset({TokenType.L_BRACKET, TokenType.ARRAY})
_BETWEEN: Final = frozenset({TokenType.L_PAREN, TokenType.COMMA, TokenType.R_PAREN})


# Functions whose arguments need additional tokens, and what inserts them.
_CALLS: Final = {"json_query": _with_path, "json_object": _with_keys}


def _closing(found: list[Token], opened: int) -> int:
    """Return where the parenthesis that opens at this token closes; past the end if it does not."""
    depth = 0
    for at in range(opened, len(found)):
        depth += (found[at].token_type in _OPENING) - (found[at].token_type in _CLOSING)
        if depth == 0:
            return at
    return len(found)


def _like(token: Token, kind: TokenType, text: str) -> Token:
    """Return a token at the position of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def name_offsets(tree: exp.Expr) -> None:
    """Set the offset kind of nested subscripts.

    In `a[OFFSET(0)][OFFSET(1)]` the parser recognises only the last OFFSET, and reads the others as functions.
    """
    for bracket in tree.find_all(exp.Bracket):
        index = bracket.expressions[0] if len(bracket.expressions) == 1 else None
        if isinstance(index, exp.Anonymous) and len(index.expressions) == 1:
            found = _OFFSETS.get(str(index.this).upper())
            if found is not None:
                bracket.set("offset", found[0])
                bracket.set("safe", found[1])
                index.replace(index.expressions[0])


# The index of the first element, and whether an index out of range yields NULL.
_OFFSETS: Final = {"OFFSET": (0, False), "ORDINAL": (1, False), "SAFE_OFFSET": (0, True), "SAFE_ORDINAL": (1, True)}


def name_paths(tree: exp.Expr) -> None:
    """Name an implicitly unnested array (`FROM t, t.items`) after the last part of its path."""
    for unnest in tree.find_all(exp.Unnest):
        # The parser stores `offset` for a written UNNEST(), but not for one that it inserts.
        if isinstance(unnest.parent, exp.Join) and "offset" not in unnest.args and unnest.args.get("alias") is None:
            path = unnest.expressions[0]
            last = path.expression if isinstance(path, exp.Dot) else path.this
            unnest.set("alias", exp.TableAlias(columns=[copied(last)]))
