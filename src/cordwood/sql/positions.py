"""Positions: convert an offset or a node to the line and column in the author's text."""

import re
from typing import Final

from sqlglot import exp

from cordwood.errors import Span

_PARAMETER_PATTERN: Final = re.compile(r"@(\w+)")


def span_at(text: str, offset: int) -> Span:
    before = text[: max(offset, 0)]
    return Span(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def span_of(node: exp.Expr, text: str) -> Span | None:
    """Return the position of the node, or else of one of its descendants or ancestors."""
    offset = _parameter_start(node, text) if isinstance(node, exp.Parameter) else start_of(node)
    while offset is None and node.parent is not None:
        node = node.parent
        offset = start_of(node)
    return None if offset is None else span_at(text, offset)


def _parameter_start(node: exp.Expr, text: str) -> int | None:
    """Return the first occurrence of the parameter's name, because sqlglot keeps no position of an @name."""
    return next((match.start() for match in _PARAMETER_PATTERN.finditer(text) if match[1] == node.name), None)


def start_of(node: exp.Expr) -> int | None:
    """Return the smallest offset of the node and its descendants."""
    starts = [part.meta_get("start") for part in node.walk()]
    return min((start for start in starts if start is not None), default=None)


def copy_position(source: exp.Expr, replacement: exp.Expr) -> exp.Expr:
    """Copy the position of a node to its replacement."""
    start = start_of(source)
    if start is not None:
        replacement.meta["start"] = start
        replacement.meta["end"] = source.meta_get("end", start)
    return replacement
