"""The description of an endpoint's sub-queries for authors of sandbox queries."""

from collections.abc import Mapping

import msgspec

from cordwood.model.datatype import Kind
from cordwood.model.shape import Path, ValueKind

Fields = Mapping[Path, frozenset[ValueKind]]


class SubQueryColumn(msgspec.Struct, frozen=True):
    """A column of a sub-query.

    `kind` is None for an event's value, whose type varies; `fields` are the paths seen below it.
    """

    name: str
    kind: Kind | None
    fields: Fields


class SubQuery(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[SubQueryColumn, ...]
