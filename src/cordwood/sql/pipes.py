"""Pipe syntax: sqlglot merges steps into one SELECT even if a step must run on the rows of an earlier one."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.sql.budget import copied

# Steps that may follow such a step within one SELECT.
_ALLOWED_AFTER: Final = {"LIMIT": frozenset({"SELECT", "EXTEND", "LIMIT"}), "DISTINCT": frozenset({"ORDER", "LIMIT"})}


def separate_pipe_steps(tokens: list[Token]) -> list[Token]:
    """Insert `|> SELECT *` between steps such as `|> LIMIT 2 |> WHERE …`, so that the latter reads a sub-query."""
    pipes = [index for index, token in enumerate(tokens) if token.token_type == TokenType.PIPE_GT]
    if len(pipes) < 2:
        return tokens
    cuts = set(_find_cuts(tokens, pipes))
    return [
        inserted_token
        for index, token in enumerate(tokens)
        for inserted_token in (*(_select_star(token) if index in cuts else ()), token)
    ]


def _find_cuts(tokens: list[Token], pipes: list[int]) -> Iterator[int]:
    open_steps: set[str] = set()
    for pipe, next_pipe in pairwise(pipes):
        step, next_step = _step_name(tokens, pipe), _step_name(tokens, next_pipe)
        open_steps.add(step)
        if step in _STARTS_SUB_QUERY:
            open_steps.clear()
        if any(_needs_sub_query(next_step, earlier) for earlier in open_steps):
            open_steps.clear()
            yield next_pipe


def copy_shared_nodes(tree: exp.Expr) -> None:
    """Copy nodes with two parents: sqlglot shares a column that AGGREGATE groups by between two places.

    A node has only one parent, so resolving it in one place would leave the other unresolved.
    """
    for node in list(tree.walk()):
        if any(child.parent is not node for child in node.iter_expressions()):
            for key, value in list(node.args.items()):
                copies = (
                    [_copy_if_shared(child, node) for child in value]
                    if isinstance(value, list)
                    else _copy_if_shared(value, node)
                )
                node.set(key, copies)


def _copy_if_shared(child: object, parent: exp.Expr) -> object:
    return copied(child) if isinstance(child, exp.Expr) and child.parent is not parent else child


# After these steps sqlglot itself begins a new sub-query.
_STARTS_SUB_QUERY: Final = frozenset(
    {"AGGREGATE", "SELECT", "EXTEND", "PIVOT", "UNPIVOT", "UNION", "INTERSECT", "EXCEPT"}
)


def _needs_sub_query(step: str, earlier: str) -> bool:
    if earlier == "ORDER":
        return step == "AGGREGATE"
    return earlier in _ALLOWED_AFTER and step not in _ALLOWED_AFTER[earlier]


def _step_name(tokens: list[Token], pipe: int) -> str:
    return tokens[pipe + 1].text.upper().split(" ")[0] if pipe + 1 < len(tokens) else ""


def _select_star(pipe: Token) -> tuple[Token, ...]:
    step = ((TokenType.PIPE_GT, "|>"), (TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"))
    return tuple(Token(kind, text, pipe.line, pipe.col, pipe.start, pipe.end) for kind, text in step)
