"""The bounds of flattening an event into attributes, which both engines keep, so that they find the same keys."""

from collections.abc import Callable
from typing import Final

# Only the top level of a longer JSON event is expanded, which bounds the memory of one vector.
MAX_CHARACTERS: Final = 16_384
# Levels that are expanded in nested calls, which hold every level in memory; further levels are expanded iteratively.
_MAX_NESTED: Final = 8


def expand_levels(entries: str, levels: int, level: Callable[[str], str], repeated: str) -> str:
    """Return SQL for entries whose objects are expanded so many levels deep.

    `level` returns SQL that expands one level. `repeated` is the engine's SQL for doing so `{levels}` times, in which
    `{level}` expands the accumulated entries `acc`, beginning with `{entries}`.
    """
    if levels > _MAX_NESTED:
        return repeated.format(levels=levels, level=level("acc"), entries=entries)
    for _ in range(levels):
        entries = level(entries)
    return entries
