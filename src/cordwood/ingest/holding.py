"""The memory of bodies: how much is held of those that arrive, until they are done with, and of those that are sent."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import Backlog, Fault

# A body that is still arriving, and has not grown for so long, gives way to others of the same key too.
STALLED_SECONDS: Final = 3.0
# Bodies of one key that may be arriving at once.
MOST_BODIES_OF_A_KEY: Final = 256


class Share:
    """What one request holds, for the key `owner`; more is asked for as its body grows."""

    def __init__(self, room: "HoldingRoom", owner: str, now: float) -> None:
        self._room = room
        self.owner = owner
        self.held = 0
        self.grown_at = now
        self.is_arriving = True
        self.is_revoked = False
        self._on_revoke: Callable[[], object] | None = None

    def take(self, more_bytes: int) -> None:
        """Backlog when others hold what would be needed, or when this share had to give way to another key's."""
        self._room.lend(self, more_bytes)

    def moved(self) -> None:
        """The body is not stalled: the other side has sent or taken some of it."""
        self.grown_at = self._room.now()

    def refusal(self) -> Fault:
        """What is told of a share that was revoked."""
        return self._room.refusal()

    def arrived(self) -> None:
        """The body is whole: from here on it is stored as fast as the disk allows, and is not revoked."""
        self.is_arriving = False

    def on_revoke(self, call: Callable[[], object]) -> None:
        """Have `call` called, from any thread, when the share is revoked while its body arrives."""
        self._on_revoke = call

    def revoke(self) -> None:
        self.is_revoked = True
        if self._on_revoke is not None:
            self._on_revoke()


class HoldingRoom:
    """At most so many bytes together, of which no body counts for more than half.

    So one body at a time may be larger, or a large one would never be let in, and leaves half of the room to others.
    No key holds more than half while another key asks for room: bodies of it that are still arriving are revoked.
    """

    def __init__(
        self,
        most_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        refusal: Callable[[], Fault] | None = None,
        most_bodies: int = MOST_BODIES_OF_A_KEY,
    ) -> None:
        self._most = most_bytes
        self._half = most_bytes // 2
        self.now = clock
        self.refusal = refusal or no_room
        self._most_bodies = most_bodies
        # What counts of the bodies of each key.
        self._by_owner: Counter[str] = Counter()
        self._shares: set[Share] = set()
        # A body is inflated in a thread.
        self._lock = threading.Lock()

    @contextmanager
    def share(self, owner: str) -> Iterator[Share]:
        """Room for one body of a key; Backlog when too many bodies of the key are under way."""
        share = Share(self, owner, self.now())
        with self._lock:
            if sum(one.owner == owner for one in self._shares) >= self._most_bodies:
                raise Backlog("Too many bodies of this key are being read at once.", retry_after=2)
            self._shares.add(share)
        try:
            yield share
        finally:
            with self._lock:
                self._shares.discard(share)
                self._give_back(share)

    def lend(self, share: Share, more_bytes: int) -> None:
        with self._lock:
            if not self._fits(share, more_bytes):
                self._make_room(share, more_bytes)
            if share.is_revoked or not self._fits(share, more_bytes):
                raise self.refusal()
            self._by_owner[share.owner] += self._counted(share, more_bytes)
            share.held += more_bytes
            share.grown_at = self.now()

    def _fits(self, share: Share, more_bytes: int) -> bool:
        if share.held + more_bytes > self._half and any(
            one is not share and one.held > self._half for one in self._shares
        ):
            return False
        more = self._counted(share, more_bytes)
        held, of_owner = self._by_owner.total(), self._by_owner[share.owner]
        return held + more <= self._most and (of_owner == held or of_owner + more <= self._half)

    def _counted(self, share: Share, more_bytes: int) -> int:
        """How much of so many more bytes of a body counts."""
        return min(share.held + more_bytes, self._half) - min(share.held, self._half)

    def _make_room(self, share: Share, more_bytes: int) -> None:
        """Revoke the largest bodies that may be revoked, until the share fits."""
        for one in sorted(self._shares, key=lambda one: -one.held):
            if self._fits(share, more_bytes):
                return
            if one is not share and self._may_be_revoked(one, share):
                self._give_back(one)
                one.revoke()

    def _may_be_revoked(self, one: Share, asking: Share) -> bool:
        if not one.is_arriving or one.is_revoked or not one.held:
            return False
        has_too_much = one.owner != asking.owner and self._by_owner[one.owner] > self._half
        return has_too_much or self.now() - one.grown_at > STALLED_SECONDS

    def _give_back(self, share: Share) -> None:
        self._by_owner[share.owner] -= min(share.held, self._half)
        if not self._by_owner[share.owner]:
            del self._by_owner[share.owner]
        share.held = 0


def no_room() -> Backlog:
    return Backlog("More events are on their way to the disk than are held in memory.", retry_after=2)
