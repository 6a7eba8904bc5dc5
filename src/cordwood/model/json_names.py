"""Detection of duplicate names in JSON objects, on which decoders disagree."""

import json


def name_given_twice(text: bytes) -> str | None:
    """Return the first duplicate name in an object at any depth, with escapes decoded. The text must be valid JSON."""
    found: list[str] = []

    def look(members: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                found.append(name)
            seen.add(name)

    json.loads(text.decode() or "{}", object_pairs_hook=look, parse_int=len, parse_float=len)
    return found[0] if found else None
