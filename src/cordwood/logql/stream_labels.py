"""The names of the labels that the streams of an endpoint have, from the description of its sub-queries."""

from collections.abc import Iterable, Iterator

from cordwood.logql.label_names import (
    LEVEL,
    LEVEL_PATHS,
    MESSAGE,
    METADATA,
    PUSHED,
    SERVICE_NAME,
    SOURCE_NAME,
    TIMESTAMP,
    label_name,
)
from cordwood.sql.sub_query_schema import SubQuery


def stream_label_names(sub_queries: Iterable[SubQuery]) -> list[str]:
    """Return the names of the labels of all sub-queries that LogQL can read."""
    return sorted({name for sub_query in sub_queries if is_readable(sub_query) for name in _names(sub_query)})


def is_readable(sub_query: SubQuery) -> bool:
    return {MESSAGE, TIMESTAMP} <= {column.name.lower() for column in sub_query.columns}


def _names(sub_query: SubQuery) -> Iterator[str]:
    yield SOURCE_NAME
    yield SERVICE_NAME
    for column in sub_query.columns:
        if column.name.lower() != METADATA:
            continue
        for path in column.fields:
            if (METADATA, *path) in LEVEL_PATHS:
                yield LEVEL
            elif path[:1] == PUSHED[1:] and len(path) == 2:
                yield label_name(path[1])
