"""The hint for a name that was not found."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str]) -> str | None:
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean {found[0]}?" if found else None
