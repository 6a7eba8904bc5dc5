"""A declared @name of an endpoint: its type, whether it must be given, and what it may be."""

from dataclasses import dataclass
from enum import StrEnum

from cordwood.model.datatype import Kind


class TextKind(StrEnum):
    """What a text parameter holds beyond being text."""

    PLAIN = "plain"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: Kind = Kind.STRING
    kind: TextKind = TextKind.PLAIN
    required: bool = False
    default: str | None = None
    one_of: tuple[str, ...] = ()
    description: str = ""
    example: str | None = None
