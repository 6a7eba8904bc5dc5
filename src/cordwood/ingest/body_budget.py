"""The memory budget of request bodies, shared fairly between keys."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import Backlog, Fault

# If a body has not grown for this long, its reservation may be revoked for another body, even of the same key.
STALLED_SECONDS: Final = 3.0
# The maximum number of bodies of one key that are read at the same time.
MAX_BODIES_PER_KEY: Final = 256


class Reservation:
    """The bytes that are reserved for one body and charged to the key `owner`. It grows as the body arrives."""

    def __init__(self, budget: "BodyBudget", owner: str, now: float) -> None:
        self._budget = budget
        self.owner = owner
        self.held = 0
        self.grown_at = now
        self.is_arriving = True
        self.is_revoked = False
        self._on_revoke: Callable[[], object] | None = None

    def take(self, more_bytes: int) -> None:
        """Reserve more bytes; raise Backlog if the budget is used up or this reservation was revoked."""
        self._budget.lend(self, more_bytes)

    def note_progress(self) -> None:
        """Record progress, so that the body does not count as stalled."""
        self.grown_at = self._budget.now()

    def refusal(self) -> Fault:
        """Return the error for a request whose reservation was revoked."""
        return self._budget.refusal()

    def mark_complete(self) -> None:
        """Mark the body as complete. It will be stored, so its reservation is no longer revoked."""
        self.is_arriving = False

    def on_revoke(self, call: Callable[[], object]) -> None:
        """Register a callback for the revocation, which may be called from any thread."""
        self._on_revoke = call

    def revoke(self) -> None:
        self.is_revoked = True
        if self._on_revoke is not None:
            self._on_revoke()


class BodyBudget:
    """A budget of `max_bytes`. A body is charged for half of the budget at most, even if it is larger.

    So one body at a time may be larger than half of the budget, while the other half stays available to others. If a
    key needs memory, incomplete bodies of a key with more than half of the budget lose their reservations.
    """

    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        refusal: Callable[[], Fault] | None = None,
        max_bodies: int = MAX_BODIES_PER_KEY,
    ) -> None:
        self._limit = max_bytes
        self._half = max_bytes // 2
        self.now = clock
        self.refusal = refusal or no_room
        self._max_bodies = max_bodies
        # The charged bytes by key.
        self._by_owner: Counter[str] = Counter()
        self._reservations: set[Reservation] = set()
        # A lock for all fields, because bodies are decompressed in threads.
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, owner: str) -> Iterator[Reservation]:
        """Reserve memory for one body; raise Backlog if the key has too many bodies at once."""
        reservation = Reservation(self, owner, self.now())
        with self._lock:
            if sum(one.owner == owner for one in self._reservations) >= self._max_bodies:
                raise Backlog("Too many bodies of this key are being read at once.", retry_after=2)
            self._reservations.add(reservation)
        try:
            yield reservation
        finally:
            with self._lock:
                self._reservations.discard(reservation)
                self._release(reservation)

    def lend(self, reservation: Reservation, more_bytes: int) -> None:
        with self._lock:
            if not self._fits(reservation, more_bytes):
                self._make_room(reservation, more_bytes)
            if reservation.is_revoked or not self._fits(reservation, more_bytes):
                raise self.refusal()
            self._by_owner[reservation.owner] += self._charge_for(reservation, more_bytes)
            reservation.held += more_bytes
            reservation.grown_at = self.now()

    def _fits(self, reservation: Reservation, more_bytes: int) -> bool:
        if reservation.held + more_bytes > self._half and any(
            one is not reservation and one.held > self._half for one in self._reservations
        ):
            return False
        more = self._charge_for(reservation, more_bytes)
        held, of_owner = self._by_owner.total(), self._by_owner[reservation.owner]
        return held + more <= self._limit and (of_owner == held or of_owner + more <= self._half)

    def _charge_for(self, reservation: Reservation, more_bytes: int) -> int:
        """Return how many bytes are charged when a body grows by `more_bytes`."""
        return min(reservation.held + more_bytes, self._half) - min(reservation.held, self._half)

    def _make_room(self, reservation: Reservation, more_bytes: int) -> None:
        """Revoke the largest revocable reservations until the requested bytes fit."""
        for one in sorted(self._reservations, key=lambda one: -one.held):
            if self._fits(reservation, more_bytes):
                return
            if one is not reservation and self._may_be_revoked(one, reservation):
                self._release(one)
                one.revoke()

    def _may_be_revoked(self, candidate: Reservation, asking: Reservation) -> bool:
        if not candidate.is_arriving or candidate.is_revoked or not candidate.held:
            return False
        has_too_much = candidate.owner != asking.owner and self._by_owner[candidate.owner] > self._half
        return has_too_much or self.now() - candidate.grown_at > STALLED_SECONDS

    def _release(self, reservation: Reservation) -> None:
        self._by_owner[reservation.owner] -= min(reservation.held, self._half)
        if not self._by_owner[reservation.owner]:
            del self._by_owner[reservation.owner]
        reservation.held = 0


def no_room() -> Backlog:
    return Backlog("The memory for events that are not stored yet is used up.", retry_after=2)
