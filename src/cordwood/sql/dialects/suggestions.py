"""Suggestions of a known name for an unknown one, by similarity of spelling and of words."""

from collections.abc import Collection
from difflib import SequenceMatcher
from typing import Final

from cordwood.errors import LONGEST_COMPARED

_LIKE: Final = 0.8
_ALIKE_IN_PARTS: Final = 0.67


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the most similar known name; None if none is similar enough. Long names are not compared."""
    if len(name) > LONGEST_COMPARED:
        return None
    wanted = name.upper()
    short = (one for one in sorted(known) if len(one) <= LONGEST_COMPARED)
    ranked = max(((_likeness(wanted, one.upper()), one) for one in short), default=(0.0, ""))
    return ranked[1] if ranked[0] >= _LIKE else None


def _likeness(wanted: str, known: str) -> float:
    """Return the similarity of two names; the same words in another order, or without underscores, count as equal."""
    if wanted.replace("_", "") == known.replace("_", "") or _is_swapped(wanted, known):
        return 1.0
    parts, known_parts = set(wanted.split("_")), set(known.split("_"))
    if len(parts) > 1 and parts == known_parts:
        return 1.0
    spelled = SequenceMatcher(None, wanted, known).ratio()
    # One letter of a short name matters: NOW is not similar to POW.
    if min(len(wanted), len(known)) <= 3 and wanted[0] != known[0]:
        return 0.0
    shared = len(parts & known_parts) / max(len(parts), len(known_parts))
    return max(spelled, _LIKE) if len(parts) > 1 and shared >= _ALIKE_IN_PARTS else spelled


def _is_swapped(wanted: str, known: str) -> bool:
    """Return whether the names differ by two adjacent letters that are swapped."""
    other = [at for at, (one, two) in enumerate(zip(wanted, known, strict=False)) if one != two]
    is_pair = len(wanted) == len(known) and len(other) == 2 and other[1] == other[0] + 1
    return is_pair and wanted[other[0]] == known[other[1]] and wanted[other[1]] == known[other[0]]
