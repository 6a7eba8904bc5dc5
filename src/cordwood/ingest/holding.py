"""How much of bodies is held in memory at once, from the first byte that arrives until the events are stored."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.errors import Backlog


class Share:
    """What one request holds; more is asked for as its body grows."""

    def __init__(self, room: "HoldingRoom") -> None:
        self._room = room
        self.held = 0

    def take(self, more_bytes: int) -> None:
        """Backlog when others hold what would be needed."""
        self._room.lend(self, more_bytes)
        self.held += more_bytes


class HoldingRoom:
    """At most so many bytes together; one request alone may hold more, or a large body would never be let in."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        # A body is inflated in a thread.
        self._lock = threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        share = Share(self)
        try:
            yield share
        finally:
            with self._lock:
                self._held -= share.held

    def lend(self, share: Share, more_bytes: int) -> None:
        with self._lock:
            if self._held > share.held and self._held + more_bytes > self._most:
                raise Backlog("More events are on their way to the disk than are held in memory.", retry_after=2)
            self._held += more_bytes
