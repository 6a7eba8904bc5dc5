"""Names for the columns of an answer, each its own."""

from collections.abc import Sequence

from cordwood.model.rows import Column


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """A later column of the same name gets `_1`, `_2`, … as BigQuery gives them."""
    taken = {column.name for column in columns}
    seen: set[str] = set()
    names = []
    for column in columns:
        name, number = column.name, 0
        while name in seen or (number and name in taken):
            number += 1
            name = f"{column.name}_{number}"
        seen.add(name)
        names.append(name)
    return names
