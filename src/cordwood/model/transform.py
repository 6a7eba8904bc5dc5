"""Transforms: steps that change the events of a stream before they are stored."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

# The steps to a field: ("metadata", "user", "id"), or one top-level name.
FieldPath = tuple[str, ...]


class Action(StrEnum):
    """The kind of a transform."""

    DROP = "drop"
    SAMPLE = "sample"
    REMOVE = "remove"
    HASH = "hash"
    COPY = "copy"
    RENAME = "rename"
    MESSAGE = "message"
    ENRICH = "enrich"


class Transform(msgspec.Struct, frozen=True):
    """A transform of the events that match the LQL filter `where`, or of all.

    `moves` are pairs of source and target fields, `fields` are single ones. `entries` are JSON texts by key.
    """

    action: Action
    where: str = ""
    rate: float = 1.0
    fields: tuple[FieldPath, ...] = ()
    moves: tuple[tuple[FieldPath, FieldPath], ...] = ()
    template: str = ""
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)
