"""The memory budget of bodies: shared by all requests, and divided fairly between keys."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.errors import Backlog, Fault

# The reservation of a body that has not grown for this long may be revoked for another body, even one of the same key.
STALLED_SECONDS: Final = 3.0
# The number of bodies of one key that may be read at once.
MOST_BODIES_OF_A_KEY: Final = 256


class Reservation:
    """The bytes reserved for the body of one request, charged to the key `owner`. It grows as the body arrives."""

    def __init__(self, budget: "BodyBudget", owner: str, now: float) -> None:
        self._budget = budget
        self.owner = owner
        self.held = 0
        self.grown_at = now
        self.is_arriving = True
        self.is_revoked = False
        self._on_revoke: Callable[[], object] | None = None

    def take(self, more_bytes: int) -> None:
        """Reserve more bytes; raise Backlog if the budget is exhausted or this reservation was revoked."""
        self._budget.lend(self, more_bytes)

    def moved(self) -> None:
        """Note progress, so that the body does not count as stalled."""
        self.grown_at = self._budget.now()

    def refusal(self) -> Fault:
        """Return the error for a request whose reservation was revoked."""
        return self._budget.refusal()

    def arrived(self) -> None:
        """Mark the body as complete: it will be stored, so its reservation is no longer revoked."""
        self.is_arriving = False

    def on_revoke(self, call: Callable[[], object]) -> None:
        """Register a callback for the revocation, which may come from any thread."""
        self._on_revoke = call

    def revoke(self) -> None:
        self.is_revoked = True
        if self._on_revoke is not None:
            self._on_revoke()


class BodyBudget:
    """A budget of `most_bytes`, in which one body is charged for at most half.

    So one body at a time may exceed half of the budget, and half of it stays available to others. When a key needs
    memory, a key that holds more than half of the budget loses reservations of incomplete bodies.
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
        # The charged bytes of each key.
        self._by_owner: Counter[str] = Counter()
        self._reservations: set[Reservation] = set()
        # Guards all fields: bodies are inflated in threads.
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, owner: str) -> Iterator[Reservation]:
        """Reserve memory for one body; raise Backlog if the key has too many bodies at once."""
        reservation = Reservation(self, owner, self.now())
        with self._lock:
            if sum(one.owner == owner for one in self._reservations) >= self._most_bodies:
                raise Backlog("Too many bodies of this key are being read at once.", retry_after=2)
            self._reservations.add(reservation)
        try:
            yield reservation
        finally:
            with self._lock:
                self._reservations.discard(reservation)
                self._give_back(reservation)

    def lend(self, reservation: Reservation, more_bytes: int) -> None:
        with self._lock:
            if not self._fits(reservation, more_bytes):
                self._make_room(reservation, more_bytes)
            if reservation.is_revoked or not self._fits(reservation, more_bytes):
                raise self.refusal()
            self._by_owner[reservation.owner] += self._counted(reservation, more_bytes)
            reservation.held += more_bytes
            reservation.grown_at = self.now()

    def _fits(self, reservation: Reservation, more_bytes: int) -> bool:
        if reservation.held + more_bytes > self._half and any(
            one is not reservation and one.held > self._half for one in self._reservations
        ):
            return False
        more = self._counted(reservation, more_bytes)
        held, of_owner = self._by_owner.total(), self._by_owner[reservation.owner]
        return held + more <= self._most and (of_owner == held or of_owner + more <= self._half)

    def _counted(self, reservation: Reservation, more_bytes: int) -> int:
        """Return how many bytes are charged for `more_bytes` of growth."""
        return min(reservation.held + more_bytes, self._half) - min(reservation.held, self._half)

    def _make_room(self, reservation: Reservation, more_bytes: int) -> None:
        """Revoke the largest revocable bodies until the request fits."""
        for one in sorted(self._reservations, key=lambda one: -one.held):
            if self._fits(reservation, more_bytes):
                return
            if one is not reservation and self._may_be_revoked(one, reservation):
                self._give_back(one)
                one.revoke()

    def _may_be_revoked(self, one: Reservation, asking: Reservation) -> bool:
        if not one.is_arriving or one.is_revoked or not one.held:
            return False
        has_too_much = one.owner != asking.owner and self._by_owner[one.owner] > self._half
        return has_too_much or self.now() - one.grown_at > STALLED_SECONDS

    def _give_back(self, reservation: Reservation) -> None:
        self._by_owner[reservation.owner] -= min(reservation.held, self._half)
        if not self._by_owner[reservation.owner]:
            del self._by_owner[reservation.owner]
        reservation.held = 0


def no_room() -> Backlog:
    return Backlog("The memory for events that are not stored yet is used up.", retry_after=2)
