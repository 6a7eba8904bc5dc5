"""A transform: one step that changes the events of a stream before they are stored."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

# The steps to a field: ("metadata", "user", "id"), or one name at the top of an event.
FieldPath = tuple[str, ...]


class Action(StrEnum):
    """The kinds of transforms."""

    DROP = "drop"
    SAMPLE = "sample"
    REMOVE = "remove"
    HASH = "hash"
    COPY = "copy"
    RENAME = "rename"
    MESSAGE = "message"
    ENRICH = "enrich"


class Transform(msgspec.Struct, frozen=True):
    """A transform for the events that the LQL filter `where` keeps, or for all.

    `moves` are pairs of fields, from and to; `fields` are single ones. `entries` are JSON texts by key.
    """

    action: Action
    where: str = ""
    rate: float = 1.0
    fields: tuple[FieldPath, ...] = ()
    moves: tuple[tuple[FieldPath, FieldPath], ...] = ()
    template: str = ""
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)
