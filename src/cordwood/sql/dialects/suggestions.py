"""Suggest a known name for an unknown one, by similarity of spelling and of words."""

from collections.abc import Collection
from difflib import SequenceMatcher
from typing import Final

from cordwood.errors import MAX_COMPARED_LENGTH

_MIN_SIMILARITY: Final = 0.8
_MIN_SHARED_WORDS: Final = 0.67


def nearest(name: str, candidates: Collection[str]) -> str | None:
    """Return the most similar known name; None if none is similar enough. Long names are not compared."""
    if len(name) > MAX_COMPARED_LENGTH:
        return None
    upper_name = name.upper()
    compared = (candidate for candidate in sorted(candidates) if len(candidate) <= MAX_COMPARED_LENGTH)
    ranked = max(((_similarity(upper_name, candidate.upper()), candidate) for candidate in compared), default=(0.0, ""))
    return ranked[1] if ranked[0] >= _MIN_SIMILARITY else None


def _similarity(name: str, candidate: str) -> float:
    """Return the similarity of two names; different word order and missing underscores do not count as differences."""
    if name.replace("_", "") == candidate.replace("_", "") or _has_swapped_letters(name, candidate):
        return 1.0
    parts, candidate_parts = set(name.split("_")), set(candidate.split("_"))
    if len(parts) > 1 and parts == candidate_parts:
        return 1.0
    ratio = SequenceMatcher(None, name, candidate).ratio()
    # Demand more similarity of short names, where one letter matters: NOW is not similar to POW.
    if min(len(name), len(candidate)) <= 3 and name[:1] != candidate[:1]:
        return 0.0
    shared = len(parts & candidate_parts) / max(len(parts), len(candidate_parts))
    return max(ratio, _MIN_SIMILARITY) if len(parts) > 1 and shared >= _MIN_SHARED_WORDS else ratio


def _has_swapped_letters(name: str, candidate: str) -> bool:
    """Return whether two adjacent letters of one name are swapped in the other."""
    differing = [index for index, (first, second) in enumerate(zip(name, candidate, strict=False)) if first != second]
    is_pair = len(name) == len(candidate) and len(differing) == 2 and differing[1] == differing[0] + 1
    return is_pair and name[differing[0]] == candidate[differing[1]] and name[differing[1]] == candidate[differing[0]]
