"""The bounds of flattening an event into attributes, which both engines keep, so that they find the same keys."""

from collections.abc import Callable
from typing import Final

# Only the top level of an event is expanded whose JSON is longer, or may have more members. An object below a longer key
# is a value. Each flattened key repeats those above it: without these bounds, an event of 16 KB takes 10 MB.
MAX_CHARACTERS: Final = 16_384
MAX_MEMBERS: Final = 512
MAX_KEY_BYTES: Final = 128
# What precedes each member's value in compact JSON.
MEMBER: Final = '":'
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
