"""Pipe syntax: sqlglot merges steps into one SELECT even if a step must run on the rows of an earlier one."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.sql.budget import copied

# Steps that may follow such a step within one SELECT.
_MAY_FOLLOW: Final = {"LIMIT": frozenset({"SELECT", "EXTEND", "LIMIT"}), "DISTINCT": frozenset({"ORDER", "LIMIT"})}


def cut_pipes(found: list[Token]) -> list[Token]:
    """Insert `|> SELECT *` between steps such as `|> LIMIT 2 |> WHERE …`, so that the latter reads a sub-query."""
    places = [at for at, token in enumerate(found) if token.token_type == TokenType.PIPE_GT]
    if len(places) < 2:
        return found
    cuts = set(_cuts(found, places))
    return [part for at, token in enumerate(found) for part in (*(_all_columns(token) if at in cuts else ()), token)]


def _cuts(found: list[Token], places: list[int]) -> Iterator[int]:
    under_way: set[str] = set()
    for place, following in pairwise(places):
        step, after = _word(found, place), _word(found, following)
        under_way.add(step)
        if step in _CLOSING:
            under_way.clear()
        if any(_must_come_after(after, earlier) for earlier in under_way):
            under_way.clear()
            yield following


def unshare(tree: exp.Expr) -> None:
    """Copy nodes with two parents: sqlglot shares a column that AGGREGATE groups by between two places.

    A node has only one parent, so resolving it in one place would leave the other unresolved.
    """
    for node in list(tree.walk()):
        if any(child.parent is not node for child in node.iter_expressions()):
            for key, value in list(node.args.items()):
                own = [_own(child, node) for child in value] if isinstance(value, list) else _own(value, node)
                node.set(key, own)


def _own(child: object, parent: exp.Expr) -> object:
    return copied(child) if isinstance(child, exp.Expr) and child.parent is not parent else child


# After these steps sqlglot itself begins a new sub-query.
_CLOSING: Final = frozenset({"AGGREGATE", "SELECT", "EXTEND", "PIVOT", "UNPIVOT", "UNION", "INTERSECT", "EXCEPT"})


def _must_come_after(step: str, earlier: str) -> bool:
    if earlier == "ORDER":
        return step == "AGGREGATE"
    return earlier in _MAY_FOLLOW and step not in _MAY_FOLLOW[earlier]


def _word(found: list[Token], pipe: int) -> str:
    return found[pipe + 1].text.upper().split(" ")[0] if pipe + 1 < len(found) else ""


def _all_columns(pipe: Token) -> tuple[Token, ...]:
    step = ((TokenType.PIPE_GT, "|>"), (TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"))
    return tuple(Token(kind, text, pipe.line, pipe.col, pipe.start, pipe.end) for kind, text in step)
