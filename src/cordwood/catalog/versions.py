"""Versions of an endpoint or a stream that is managed over HTTP."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

MAX_VERSIONS: Final = 50
MAX_BYTES: Final = 256 * 1024


class Version(msgspec.Struct, frozen=True):
    """`text` is the whole definition, or None for a deletion; `key` is the id of the key that made the change."""

    number: int
    at: float
    key: str
    text: str | None


def with_current(versions: Sequence[Version], current: str | None) -> tuple[Version, ...]:
    """Append the current text if it differs from the last version, because the file was edited by hand."""
    last = versions[-1].text if versions else None
    return tuple(versions) if last == current else append_version(versions, current, "")


def append_version(versions: Sequence[Version], text: str | None, key: str) -> tuple[Version, ...]:
    """Append a version."""
    number = versions[-1].number + 1 if versions else 1
    return (*versions, Version(number, time.time(), key, text))


def limit_versions(versions: Sequence[Version]) -> tuple[Version, ...]:
    """Drop the oldest versions beyond the limits of number and size; always keep the last two."""
    recent: list[Version] = []
    size = 0
    for version in reversed(versions[-MAX_VERSIONS:]):
        size += len((version.text or "").encode())
        if size > MAX_BYTES and len(recent) > 1:
            break
        recent.append(version)
    return tuple(reversed(recent))
