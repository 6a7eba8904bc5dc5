"""The port through which finished answers are kept, within a budget of bytes."""

from typing import Protocol


class Sized(Protocol):
    """Anything that knows how many bytes of memory it holds now."""

    @property
    def size(self) -> int: ...


class AnswerCache(Protocol):
    """Called from the event loop only. Never raises: what cannot be kept is not kept."""

    def get(self, key: bytes) -> Sized | None:
        """What is kept under the key; it is now the most recently used, and counted with the size it has now."""

    def peek(self, key: bytes) -> Sized | None:
        """What is kept under the key, without using it."""

    def put(self, key: bytes, kept: Sized) -> None:
        """Keep it, in place of what had the key; the least recently used goes when the budget is passed."""

    def drop(self, key: bytes) -> None:
        """Forget the key; it need not be known."""

    def size(self) -> int:
        """Bytes held now."""

    def budget(self) -> int:
        """Bytes that may be held."""
