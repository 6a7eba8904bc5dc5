"""Forms of BigQuery's that the parser takes otherwise than they are meant, written so that it cannot."""

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
    """`JSON '…'.a` and `SAFE.F(…)[0]` get brackets around their value, JSON_QUERY(x) its path, JSON_OBJECT(…) its keys."""
    _keep_paths(found)
    inserted = dict(_insertions(found))
    if not inserted:
        return found
    cleared = [part for at, token in enumerate(found) for part in (*inserted.get(at, ()), token)]
    return [*cleared, *inserted.get(len(found), ())]


def _keep_paths(found: list[Token]) -> None:
    """The parser reads paths of JSON and formats of times in its own way, and loses what is empty; raw text it leaves be."""
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
    """What is put before which token."""
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
    """The parser reads `ALL UNNEST(…)` in brackets only."""
    if token.token_type == TokenType.UNNEST and _is_call(found, at):
        yield at, (_like(token, TokenType.L_PAREN, "("),)
        yield _closing(found, at + 1) + 1, (_like(token, TokenType.R_PAREN, ")"),)


def clear_quantifiers(tree: exp.Expr) -> None:
    """`LIKE ALL UNNEST(…)` without the brackets that it was given to be read."""
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
    """Of arrays of keys and values the parser makes pairs, and loses what is in excess."""
    depth = 0
    for at in range(opened, _closing(found, opened)):
        token = found[at]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 1 and token.token_type == TokenType.COMMA:
            yield opened + 1, (_like(found[opened], TokenType.L_PAREN, "("),)
            yield at, (_like(token, TokenType.R_PAREN, ")"),)
            return


def _with_names(found: list[Token], opened: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Columns called `key` and `value`: the parser takes them for other dialects' words, and loses them."""
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


# Calls whose arguments the parser needs help with, and what is put into them.
_CALLS: Final = {"json_query": _with_path, "json_object": _with_keys}


def _closing(found: list[Token], opened: int) -> int:
    """Where the bracket is closed that is opened there; past the end if it never is."""
    depth = 0
    for at in range(opened, len(found)):
        depth += (found[at].token_type in _OPENING) - (found[at].token_type in _CLOSING)
        if depth == 0:
            return at
    return len(found)


def _like(token: Token, kind: TokenType, text: str) -> Token:
    """A token at the place of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def name_offsets(tree: exp.Expr) -> None:
    """In `a[OFFSET(0)][OFFSET(1)]` the parser reads only the last OFFSET as one, and the others as functions."""
    for bracket in tree.find_all(exp.Bracket):
        index = bracket.expressions[0] if len(bracket.expressions) == 1 else None
        if isinstance(index, exp.Anonymous) and len(index.expressions) == 1:
            found = _OFFSETS.get(str(index.this).upper())
            if found is not None:
                bracket.set("offset", found[0])
                bracket.set("safe", found[1])
                index.replace(index.expressions[0])


# What the index of the first element is, and whether one that is outside is NULL.
_OFFSETS: Final = {"OFFSET": (0, False), "ORDINAL": (1, False), "SAFE_OFFSET": (0, True), "SAFE_ORDINAL": (1, True)}


def name_paths(tree: exp.Expr) -> None:
    """An array that is only named, `FROM t, t.items`, is called as its path ends; one in UNNEST() has no name of its own."""
    for unnest in tree.find_all(exp.Unnest):
        # The parser keeps of UNNEST() whether it has an offset, and not of what it puts there itself.
        if isinstance(unnest.parent, exp.Join) and "offset" not in unnest.args and unnest.args.get("alias") is None:
            path = unnest.expressions[0]
            last = path.expression if isinstance(path, exp.Dot) else path.this
            unnest.set("alias", exp.TableAlias(columns=[copied(last)]))
