"""The interface of the answer cache, which is bounded in bytes."""

from typing import Protocol


class Sized(Protocol):
    """An object that knows how many bytes it holds."""

    @property
    def size(self) -> int: ...


class AnswerCache(Protocol):
    """A cache for the event loop. It never raises: an answer that does not fit is not stored."""

    def get(self, key: bytes) -> Sized | None:
        """Return the entry, mark it as the most recently used, and update its size."""

    def peek(self, key: bytes) -> Sized | None:
        """Return the entry without marking it as used."""

    def put(self, key: bytes, kept: Sized) -> None:
        """Store an entry; evict the least recently used ones beyond the budget."""

    def drop(self, key: bytes) -> None:
        """Remove an entry, if it exists."""

    def size(self) -> int:
        """Return the bytes held."""

    def budget(self) -> int:
        """Return the budget in bytes."""
