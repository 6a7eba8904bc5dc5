"""Holds the metadata of an event to the project that its sender's key is pinned to, where its stream says that one stands."""

from collections.abc import Sequence

import msgspec

from cordwood.ingest.items import text_of
from cordwood.model.event import Event

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode

_NO_FIELDS = msgspec.Raw(b"{}")


class ForeignClaim(Exception):
    """Some record of the event says that it is of another project."""

    def __init__(self, claimed: str) -> None:
        super().__init__(claimed)
        self.claimed = claimed


def claimed_for(event: Event, place: Sequence[str], project: str) -> Event:
    """The event with the project in every record of its metadata; ForeignClaim where there is another.

    It is written anew, so that a name that stood there twice stands there once.
    """
    metadata = msgspec.Raw(event.metadata.encode()) if event.metadata is not None else _NO_FIELDS
    held = _held(metadata, place, project)
    return msgspec.structs.replace(event, metadata=bytes(held).decode())


def _held(value: msgspec.Raw, place: Sequence[str], project: str) -> msgspec.Raw:
    """Records are objects, and those in an array; what is no record has no fields that could be asked for."""
    match _kind(value):
        case "{":
            return _held_record(value, place, project)
        case "[":
            elements = _elements.decode(value)
            return msgspec.Raw(
                _encode([_held_record(one, place, project) if _kind(one) == "{" else one for one in elements])
            )
        case _:
            return value


def _held_record(value: msgspec.Raw, place: Sequence[str], project: str) -> msgspec.Raw:
    fields, (step, *rest) = _fields.decode(value), place
    there = fields.get(step, msgspec.Raw(b"null"))
    if rest:
        fields[step] = _held(_NO_FIELDS if text_of(there) is None else there, rest, project)
    elif (claimed := text_of(there)) is None:
        fields[step] = msgspec.Raw(_encode(project))
    elif claimed != project:
        raise ForeignClaim(claimed)
    return msgspec.Raw(_encode(fields))


def _kind(value: msgspec.Raw) -> str:
    return bytes(value).lstrip()[:1].decode()
