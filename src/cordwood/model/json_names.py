"""Names that stand twice in one JSON object: readers disagree on which of the two counts."""

import json


def name_given_twice(text: bytes) -> str | None:
    """Return the first name that stands twice in one object, however it is escaped, at any depth. The text is JSON."""
    found: list[str] = []

    def look(members: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                found.append(name)
            seen.add(name)

    json.loads(text.decode() or "{}", object_pairs_hook=look, parse_int=len, parse_float=len)
    return found[0] if found else None
