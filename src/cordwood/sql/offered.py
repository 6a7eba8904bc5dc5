"""What an endpoint's sub-queries are made of, as told to people who write a query over them."""

from collections.abc import Mapping

import msgspec

from cordwood.model.datatype import Kind
from cordwood.model.shape import Path, ValueKind

Fields = Mapping[Path, frozenset[ValueKind]]


class OfferedColumn(msgspec.Struct, frozen=True):
    """`kind` is None where only an event's own value tells; `fields` are the paths below it that were ever seen."""

    name: str
    kind: Kind | None
    fields: Fields


class SubQuery(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[OfferedColumn, ...]
