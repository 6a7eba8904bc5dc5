"""Enforce the project of a pinned key inside the metadata of events, at the path that the stream configures."""

from collections.abc import Sequence

import msgspec

from cordwood.ingest.items import text_of
from cordwood.model.event import Event

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode

_NO_FIELDS = msgspec.Raw(b"{}")


class ForeignClaim(Exception):
    """A record of the event names another project than the key is pinned to."""

    def __init__(self, claimed: str) -> None:
        super().__init__(claimed)
        self.claimed = claimed


def claimed_for(event: Event, place: Sequence[str], project: str) -> Event:
    """Return the event with the project set in every record of its metadata; raise ForeignClaim if one names another.

    The metadata is encoded anew, so that a duplicate key in an object is reduced to one.
    """
    metadata = msgspec.Raw(event.metadata.encode()) if event.metadata is not None else _NO_FIELDS
    held = _held(metadata, place, project)
    return msgspec.structs.replace(event, metadata=bytes(held).decode())


def _held(value: msgspec.Raw, place: Sequence[str], project: str) -> msgspec.Raw:
    """Set the project in a record, or in each record of an array; return any other value unchanged."""
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
