"""A declared @name of an endpoint: its type, whether it must be given, and what it may be."""

from enum import StrEnum

import msgspec

from cordwood.model.datatype import Kind


class TextKind(StrEnum):
    """What a text parameter holds beyond being text."""

    PLAIN = "plain"
    REGEX = "regex"


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: Kind = Kind.STRING
    kind: TextKind = TextKind.PLAIN
    required: bool = False
    default: str | None = None
    one_of: tuple[str, ...] = ()
    description: str = ""
    example: str | None = None
