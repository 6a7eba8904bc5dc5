"""Declared parameters of an endpoint: type, default and allowed values."""

from enum import StrEnum

import msgspec

from cordwood.model.datatype import Kind


class TextKind(StrEnum):
    """The interpretation of a text parameter."""

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
