"""UUIDs of endpoints and streams, which are stated in their files or derived from their names."""

import re
from uuid import UUID, uuid5

from cordwood.catalog.toml_document import Document, Path

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def read_id(document: Document, path: Path, value: object, namespace: UUID, name: str) -> UUID:
    if value is None:
        return uuid5(namespace, name)
    if not isinstance(value, str) or not is_uuid(value):
        raise document.fault_at(f"{value!r} is no UUID.", path, "Leave id out, and one is made from the name.")
    return UUID(value)


def numeric_id(token: UUID) -> int:
    """Return the numeric id for Logflare's clients: the first 31 bits of the UUID.

    Like the UUID, it is the same in every installation. Two objects may have the same numeric id.
    """
    return token.int >> 97
