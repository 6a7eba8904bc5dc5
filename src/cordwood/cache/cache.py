"""The port through which finished answers are kept, within a budget of bytes."""

from typing import Protocol


class Kept(Protocol):
    """Anything that knows how many bytes of memory it holds."""

    @property
    def size(self) -> int: ...


class AnswerCache(Protocol):
    """Called from the event loop only. Never raises: what cannot be kept is not kept."""

    def get(self, key: bytes) -> Kept | None: ...

    def put(self, key: bytes, kept: Kept) -> None: ...

    def drop(self, key: bytes) -> None: ...
