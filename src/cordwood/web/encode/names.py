"""Unique column names of an answer."""

from collections.abc import Sequence

from cordwood.model.rows import Column


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Return the names; a repeated one gets the suffix `_1`, `_2`, …, as in BigQuery."""
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
