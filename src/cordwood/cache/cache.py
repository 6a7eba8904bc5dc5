"""The interface of the answer cache, whose size in bytes is limited."""

from typing import Protocol


class HasSize(Protocol):
    """An object that knows its size in bytes."""

    @property
    def size(self) -> int: ...


class AnswerCache(Protocol):
    """A cache used by the event loop. Its methods never raise: an answer that does not fit is not stored."""

    def get(self, key: bytes) -> HasSize | None:
        """Return the entry, mark it as the most recently used, and update its size."""

    def peek(self, key: bytes) -> HasSize | None:
        """Return the entry without marking it as used."""

    def put(self, key: bytes, kept: HasSize) -> None:
        """Store an entry; evict the least recently used entries beyond the budget."""

    def drop(self, key: bytes) -> None:
        """Remove an entry, if it exists."""

    def size(self) -> int:
        """Return the total size of all entries in bytes."""

    def budget(self) -> int:
        """Return the maximum total size in bytes."""
