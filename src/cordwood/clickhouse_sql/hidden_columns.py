"""Aliases that hide a column of the same name, which the hints of errors mention."""

from typing import Final

from sqlglot import exp

_HINT_METADATA_KEY: Final = "hidden_column_hint"


def mark_hidden_column(expanded: exp.Expr, alias: str, qualified_column: str) -> None:
    """Note on an expression that stands in place of `alias` that the alias hides a column.

    `qualified_column` is the name by which the query can read the column.
    """
    hint = f'The alias "{alias[:40]}" hides the column of this name; {qualified_column[:60]} is the column.'
    expanded.unnest().meta[_HINT_METADATA_KEY] = hint


def add_hidden_column_hint(node: exp.Expr, hint: str | None) -> str | None:
    """Return the hint of an error about `node`; add to it if the node or an operand is an alias that hides a column."""
    for part in (node, *node.iter_expressions()):
        addition = part.unnest().meta_get(_HINT_METADATA_KEY)
        if addition is not None:
            return f"{hint} {addition}" if hint else str(addition)
    return hint
