"""The names of labels, the same in answers and in queries.

An event's labels are the name of its sub-query or stream (`source_name`, `service_name`), its `level`, and the labels
that Loki's senders push. All its other fields are what Loki calls structured metadata: usable in filters and groups.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from cordwood.bounded_cache import remember_short
from cordwood.sql.sub_query_schema import SubQuery

SOURCE_NAME: Final = "source_name"
SERVICE_NAME: Final = "service_name"
LEVEL_LABEL: Final = "level"
# Loki's own name for the level; every entry has this label.
DETECTED_LEVEL: Final = "detected_level"
UNKNOWN_LEVEL: Final = "unknown"

METADATA_COLUMN: Final = "metadata"
MESSAGE_COLUMN: Final = "event_message"
TIMESTAMP_COLUMN: Final = "timestamp"

# The path at which the labels of Loki's senders are stored.
PUSHED_LABELS_PATH: Final = (METADATA_COLUMN, "labels")
# Paths of the level and of the service label, in order of precedence.
LEVEL_PATHS: Final = ((METADATA_COLUMN, "level"), (METADATA_COLUMN, "severity_text"), (METADATA_COLUMN, "severity"))
# Paths below which other labels of an event are looked up, in order of precedence.
FIELD_ROOTS: Final = (
    (METADATA_COLUMN, "structured_metadata"),
    (METADATA_COLUMN, "attributes"),
    (METADATA_COLUMN, "resource"),
    (METADATA_COLUMN,),
)
# Columns that are not labels themselves.
ENTRY_COLUMNS: Final = frozenset({"id", TIMESTAMP_COLUMN, MESSAGE_COLUMN, METADATA_COLUMN})

# The prefix of the name of a sub-query that stands for a whole stream. It cannot have the stream's own name.
STREAM_PREFIX: Final = "stream "

# The maximum number of labels of one stream or series.
MAX_LABELS: Final = 60

# The prefix of the names of columns in which an answer has labels.
_COLUMN_PREFIX: Final = "label_"
_CAPITAL_LETTER: Final = re.compile("[A-Z]")
_ESCAPED_CAPITAL: Final = re.compile(r"\$(.)")

_SPECIAL_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_]")


@remember_short(max_length=128, max_entries=4096)
def label_name(key: str) -> str:
    """Return the label name for a field's key."""
    name = _SPECIAL_CHARACTER.sub("_", key)
    return f"_{name}" if name[:1].isdigit() else name


def source_of(sub_query: str) -> str:
    """Return the value of `source_name`: the name of a sub-query, or of the stream that it stands for."""
    return sub_query.removeprefix(STREAM_PREFIX)


def label_column(name: str) -> str:
    """Return the name of the column for a label.

    Labels may differ only by case; columns may not, so capitals are escaped.
    """
    return _COLUMN_PREFIX + _CAPITAL_LETTER.sub(lambda match: f"${match[0].lower()}", name)


def label_of_column(column: str) -> str:
    """Return the label whose column has this name."""
    return _ESCAPED_CAPITAL.sub(lambda match: match[1].upper(), column.removeprefix(_COLUMN_PREFIX))


def first_labels(names: Iterable[str]) -> list[str]:
    """Return as many label names as a stream may have: first those that every stream has, then others in order."""
    own = (SOURCE_NAME, SERVICE_NAME, LEVEL_LABEL)
    ordered = sorted(set(names), key=lambda name: (name not in own, name))
    return sorted(ordered[:MAX_LABELS])


def stream_label_names(sub_queries: Iterable[SubQuery]) -> list[str]:
    """Return the names of the labels of all sub-queries that LogQL can read."""
    return sorted({name for sub_query in sub_queries if _is_readable(sub_query) for name in _label_names(sub_query)})


def _is_readable(sub_query: SubQuery) -> bool:
    return {MESSAGE_COLUMN, TIMESTAMP_COLUMN} <= {column.name.lower() for column in sub_query.columns}


def _label_names(sub_query: SubQuery) -> Iterator[str]:
    yield SOURCE_NAME
    yield SERVICE_NAME
    for column in sub_query.columns:
        if column.name.lower() != METADATA_COLUMN:
            continue
        for path in column.fields:
            if (METADATA_COLUMN, *path) in LEVEL_PATHS:
                yield LEVEL_LABEL
            elif path[:1] == PUSHED_LABELS_PATH[1:] and len(path) == 2:
                yield label_name(path[1])
