"""Positions in the text of a query, and suggestions of known names, for error messages."""

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from typing import Final

from sqlglot import exp

from cordwood.errors import MAX_COMPARED_NAME_LENGTH, Span

_PARAMETER_PATTERN: Final = re.compile(r"@(\w+)")


def span_at(text: str, offset: int) -> Span:
    before = text[: max(offset, 0)]
    return Span(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def span_of(node: exp.Expr, text: str) -> Span | None:
    """Return the first position in the node and its descendants; else one from the nearest ancestor that has any."""
    offset = _parameter_text_offset(node, text) if isinstance(node, exp.Parameter) else start_offset(node)
    while offset is None and node.parent is not None:
        node = node.parent
        offset = start_offset(node)
    return None if offset is None else span_at(text, offset)


def _parameter_text_offset(node: exp.Expr, text: str) -> int | None:
    """Return the offset of the first `@name` in the text that names this parameter.

    sqlglot does not store the positions of parameters, so the text is searched.
    """
    return next((match.start() for match in _PARAMETER_PATTERN.finditer(text) if match[1] == node.name), None)


def start_offset(node: exp.Expr) -> int | None:
    """Return the offset in the query's text at which the node and its descendants begin; None if it is unknown."""
    starts = [part.meta_get("start") for part in node.walk()]
    return min((start for start in starts if start is not None), default=None)


def copy_source_position(source: exp.Expr, replacement: exp.Expr) -> exp.Expr:
    """Copy the position of a node to its replacement."""
    start = start_offset(source)
    if start is not None:
        replacement.meta["start"] = start
        replacement.meta["end"] = source.meta_get("end", start)
    return replacement


_MIN_NAME_SIMILARITY: Final = 0.8
_MIN_SHARED_WORD_RATIO: Final = 0.67


def most_similar_name(name: str, candidates: Collection[str]) -> str | None:
    """Return the most similar known name; None if none is similar enough. Long names are not compared."""
    if len(name) > MAX_COMPARED_NAME_LENGTH:
        return None
    upper_name = name.upper()
    compared = (candidate for candidate in sorted(candidates) if len(candidate) <= MAX_COMPARED_NAME_LENGTH)
    ranked = max(
        ((_name_similarity(upper_name, candidate.upper()), candidate) for candidate in compared), default=(0.0, "")
    )
    return ranked[1] if ranked[0] >= _MIN_NAME_SIMILARITY else None


def _name_similarity(name: str, candidate: str) -> float:
    """Return the similarity of two names; different word order and missing underscores do not count as differences."""
    if name.replace("_", "") == candidate.replace("_", "") or _has_swapped_letters(name, candidate):
        return 1.0
    parts, candidate_parts = set(name.split("_")), set(candidate.split("_"))
    if len(parts) > 1 and parts == candidate_parts:
        return 1.0
    ratio = SequenceMatcher(None, name, candidate).ratio()
    # Short names with different first letters are not similar: NOW is not a misspelling of POW.
    if min(len(name), len(candidate)) <= 3 and name[:1] != candidate[:1]:
        return 0.0
    shared = len(parts & candidate_parts) / max(len(parts), len(candidate_parts))
    return max(ratio, _MIN_NAME_SIMILARITY) if len(parts) > 1 and shared >= _MIN_SHARED_WORD_RATIO else ratio


def _has_swapped_letters(name: str, candidate: str) -> bool:
    """Return whether two adjacent letters of one name are swapped in the other."""
    differing = [index for index, (first, second) in enumerate(zip(name, candidate, strict=False)) if first != second]
    is_pair = len(name) == len(candidate) and len(differing) == 2 and differing[1] == differing[0] + 1
    return is_pair and name[differing[0]] == candidate[differing[1]] and name[differing[1]] == candidate[differing[0]]
