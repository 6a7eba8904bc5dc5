"""Limits of ingestion: the memory for request bodies, each stream's events per second, and each stream's large events.

A request beyond one of these limits is refused with 429 and a time to wait.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from cordwood.errors import BacklogFull, Fault, LargeEventLimitExceeded, StreamRateExceeded
from cordwood.model.definitions import Stream
from cordwood.model.event import Event

# If a body has not grown for this long, its reservation may be revoked to make room for another body, even for one of
# the same key.
BODY_STALL_TIMEOUT_SECONDS: Final = 3.0
# The maximum number of bodies of one key that are read at the same time.
MAX_BODIES_PER_KEY: Final = 256


class MemoryReservation:
    """The memory that is reserved for one body and charged to the key `owner`.

    The reservation grows as the body arrives.
    """

    def __init__(self, budget: "BodyMemoryBudget", owner: str, now: float) -> None:
        self._budget = budget
        self.owner = owner
        self.held_bytes = 0
        self.last_progress_at = now
        self.is_body_arriving = True
        self.is_revoked = False
        self._on_revoke: Callable[[], object] | None = None

    def reserve(self, more_bytes: int) -> None:
        """Reserve more bytes; raise BacklogFull if the budget is used up or this reservation was revoked."""
        self._budget.grow_reservation(self, more_bytes)

    def record_body_progress(self) -> None:
        """Record that the body has grown, so that it does not count as stalled."""
        self.last_progress_at = self._budget.clock()

    def refusal_fault(self) -> Fault:
        """Return the error for a request whose reservation was revoked."""
        return self._budget.make_refusal_fault()

    def mark_body_complete(self) -> None:
        """Mark the body as complete. It will be stored, so its reservation is no longer revoked."""
        self.is_body_arriving = False

    def set_revoke_callback(self, call: Callable[[], object]) -> None:
        """Register a callback that is called when the reservation is revoked, which may happen in any thread."""
        self._on_revoke = call

    def revoke(self) -> None:
        self.is_revoked = True
        if self._on_revoke is not None:
            self._on_revoke()


class BodyMemoryBudget:
    """A memory budget of `max_bytes` for request bodies.

    A body is charged for at most half of the budget, even if it is larger. So one body at a time may be larger than
    half of the budget, while the other half stays available for other bodies. If a body needs more memory than is free,
    reservations of other bodies are revoked, and their requests are refused. Only bodies that are still arriving lose
    their reservations: those that have stalled, and those of another key that uses more than half of the budget.
    """

    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        refusal: Callable[[], Fault] | None = None,
        max_bodies: int = MAX_BODIES_PER_KEY,
    ) -> None:
        self._max_bytes = max_bytes
        self._half_of_max_bytes = max_bytes // 2
        self.clock = clock
        self.make_refusal_fault = refusal or memory_used_up_fault
        self._max_bodies_per_owner = max_bodies
        # The number of charged bytes of each key.
        self._charged_bytes_by_owner: Counter[str] = Counter()
        self._reservations: set[MemoryReservation] = set()
        # A lock for all fields, because bodies are decompressed in threads.
        self._lock = threading.Lock()

    @contextmanager
    def open_reservation(self, owner: str) -> Iterator[MemoryReservation]:
        """Open a reservation for one body of the key `owner`, and release it at the end of the `with` block.

        Raise BacklogFull if too many bodies of the key are being read at once.
        """
        reservation = MemoryReservation(self, owner, self.clock())
        with self._lock:
            if sum(one.owner == owner for one in self._reservations) >= self._max_bodies_per_owner:
                raise BacklogFull("Too many bodies of this key are being read at once.", retry_after=2)
            self._reservations.add(reservation)
        try:
            yield reservation
        finally:
            with self._lock:
                self._reservations.discard(reservation)
                self._release(reservation)

    def grow_reservation(self, reservation: MemoryReservation, more_bytes: int) -> None:
        with self._lock:
            if not self._can_grow_reservation(reservation, more_bytes):
                self._revoke_others_to_fit(reservation, more_bytes)
            if reservation.is_revoked or not self._can_grow_reservation(reservation, more_bytes):
                raise self.make_refusal_fault()
            self._charged_bytes_by_owner[reservation.owner] += self._bytes_to_charge(reservation, more_bytes)
            reservation.held_bytes += more_bytes
            reservation.last_progress_at = self.clock()

    def _can_grow_reservation(self, reservation: MemoryReservation, more_bytes: int) -> bool:
        if reservation.held_bytes + more_bytes > self._half_of_max_bytes and any(
            one is not reservation and one.held_bytes > self._half_of_max_bytes for one in self._reservations
        ):
            return False
        more = self._bytes_to_charge(reservation, more_bytes)
        held, of_owner = self._charged_bytes_by_owner.total(), self._charged_bytes_by_owner[reservation.owner]
        return held + more <= self._max_bytes and (of_owner == held or of_owner + more <= self._half_of_max_bytes)

    def _bytes_to_charge(self, reservation: MemoryReservation, more_bytes: int) -> int:
        """Return how many bytes are charged when a body grows by `more_bytes`.

        Those bytes of a body that exceed half of the budget are not charged.
        """
        return min(reservation.held_bytes + more_bytes, self._half_of_max_bytes) - min(
            reservation.held_bytes, self._half_of_max_bytes
        )

    def _revoke_others_to_fit(self, reservation: MemoryReservation, more_bytes: int) -> None:
        """Revoke reservations of other bodies, the largest first, until `more_bytes` can be reserved."""
        for one in sorted(self._reservations, key=lambda one: -one.held_bytes):
            if self._can_grow_reservation(reservation, more_bytes):
                return
            if one is not reservation and self._may_be_revoked(one, reservation):
                self._release(one)
                one.revoke()

    def _may_be_revoked(self, candidate: MemoryReservation, asking: MemoryReservation) -> bool:
        if not candidate.is_body_arriving or candidate.is_revoked or not candidate.held_bytes:
            return False
        has_too_much = (
            candidate.owner != asking.owner and self._charged_bytes_by_owner[candidate.owner] > self._half_of_max_bytes
        )
        return has_too_much or self.clock() - candidate.last_progress_at > BODY_STALL_TIMEOUT_SECONDS

    def _release(self, reservation: MemoryReservation) -> None:
        self._charged_bytes_by_owner[reservation.owner] -= min(reservation.held_bytes, self._half_of_max_bytes)
        if not self._charged_bytes_by_owner[reservation.owner]:
            del self._charged_bytes_by_owner[reservation.owner]
        reservation.held_bytes = 0


def memory_used_up_fault() -> BacklogFull:
    return BacklogFull("The memory for events that are not stored yet is used up.", retry_after=2)


class _EventTokenBucket(msgspec.Struct):
    """A token bucket, from which each event takes a token.

    `tokens` is negative after a body with more events than there were tokens.
    """

    tokens: float
    refilled_at: float


class StreamRateLimiter:
    """The rate limits of streams: each stream has a token bucket, which holds at most the tokens of one second.

    The number of events is known only after a body was decoded, and a body is accepted as a whole. So a body is
    accepted if any token is left, even if it has more events than tokens. The next body then has to wait until the
    missing tokens have been refilled. `clock` is a monotonic clock in seconds.
    """

    def __init__(self, default_per_second: float | None, clock: Callable[[], float]) -> None:
        self._default_events_per_second = default_per_second
        self._clock = clock
        self._token_bucket_by_stream: dict[str, _EventTokenBucket] = {}

    def check_rate(self, stream: Stream) -> None:
        """Raise StreamRateExceeded if the stream has no token left."""
        rate = self._events_per_second_limit(stream)
        if rate is None:
            return
        left = self._refilled_bucket(stream.name, rate).tokens
        if left <= 0:
            raise StreamRateExceeded(
                f"The stream {stream.name} takes {_format_rate(rate)}, and more were sent.",
                hint="Wait for as long as Retry-After says.",
                retry_after=max(1.0, -left / rate),
            )

    def charge_events(self, stream: Stream, events: int) -> None:
        rate = self._events_per_second_limit(stream)
        if rate is not None:
            self._refilled_bucket(stream.name, rate).tokens -= events

    def _events_per_second_limit(self, stream: Stream) -> float | None:
        return stream.events_per_second or self._default_events_per_second

    def _refilled_bucket(self, name: str, rate: float) -> _EventTokenBucket:
        now, limit = self._clock(), max(1.0, rate)
        account = self._token_bucket_by_stream.setdefault(name, _EventTokenBucket(limit, now))
        account.tokens = min(limit, account.tokens + (now - account.refilled_at) * rate)
        account.refilled_at = now
        return account


def _format_rate(rate: float) -> str:
    return f"{rate:g} events a second" if rate >= 1 else f"an event in {math.ceil(1 / rate)} s"


# An event with more characters than this counts as large. Smaller events need no limit: DuckDB processes 2,048 rows at
# once, and 2,048 events of this size fit into memory.
LARGE_EVENT_THRESHOLD_CHARACTERS: Final = 32 * 1024
# The number of successive events of a stream, large or not, that share one budget. These events are a window.
_EVENTS_PER_BUDGET_WINDOW: Final = 20_000
# One project may use only a quarter of a window's budget. Compaction sorts the events of ten windows by project, which
# puts all large events of a project next to each other.
_PROJECT_BUDGET_DIVISOR: Final = 4


class _BudgetWindow(msgspec.Struct):
    event_count: int = 0
    large_event_bytes: int = 0
    large_event_bytes_by_project: Counter[str | None] = msgspec.field(default_factory=Counter)


class LargeEventLimiter:
    """Limits the large events among every 20,000 successive events of a stream to `max_bytes` in total.

    If `max_bytes` is None, all events are accepted. The limiter is thread-safe. The limit is needed because DuckDB
    processes 2,048 adjacent rows at once, and a whole row group when it writes or sorts. For example, it cannot write
    216 adjacent events of 1 MB each with 512 MB of memory. After such a failure, no further events could be stored
    either.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self._max_large_bytes_per_window = max_bytes
        self._budget_window_by_stream: dict[str, _BudgetWindow] = {}
        self._lock = threading.Lock()

    def charge_events(self, stream: str, events: Sequence[Event]) -> None:
        """Charge the large ones of the events to the budget of their stream.

        If they exceed the budget, raise LargeEventLimitExceeded and charge nothing.
        """
        large: Counter[str | None] = Counter()
        for event in events:
            size = event_character_count(event)
            if size > LARGE_EVENT_THRESHOLD_CHARACTERS:
                large[event.project] += size
        if not self._try_charge(stream, large, len(events)):
            raise LargeEventLimitExceeded(
                f"The stream {stream} has too many events of over {LARGE_EVENT_THRESHOLD_CHARACTERS // 1024} KiB among its recent events.",
                hint="Send fewer of them, or shorter ones, or give the service more memory (limits.memory).",
                retry_after=60,
            )

    def try_charge_text(self, stream: str, project: str | None, size: int) -> bool:
        """Charge a text of `size` characters to the budget of its stream; return False if it exceeds the budget."""
        return self._try_charge(stream, Counter({project: size} if size > LARGE_EVENT_THRESHOLD_CHARACTERS else {}), 1)

    def _try_charge(self, stream: str, large_by_project: Counter[str | None], events: int) -> bool:
        if self._max_large_bytes_per_window is None:
            return True
        with self._lock:
            window = self._budget_window_by_stream.setdefault(stream, _BudgetWindow())
            if window.event_count >= _EVENTS_PER_BUDGET_WINDOW:
                window = self._budget_window_by_stream[stream] = _BudgetWindow()
            has_room = window.large_event_bytes + large_by_project.total() <= self._max_large_bytes_per_window and all(
                window.large_event_bytes_by_project[project] + size
                <= self._max_large_bytes_per_window // _PROJECT_BUDGET_DIVISOR
                for project, size in large_by_project.items()
            )
            if has_room or not large_by_project:
                window.event_count += events
                window.large_event_bytes += large_by_project.total()
                window.large_event_bytes_by_project.update(large_by_project)
            return has_room or not large_by_project


UNLIMITED_LARGE_EVENT_LIMITER: Final = LargeEventLimiter(None)


def event_character_count(event: Event) -> int:
    """Return the number of characters of an event.

    It is at most the number of bytes that were sent, so an event whose bytes are within a limit is never refused.
    """
    message, metadata, extras = event.event_message, event.metadata, event.extras
    return len(event.id) + len(message or "") + len(metadata or "") + len(extras or "")
