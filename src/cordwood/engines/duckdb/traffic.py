"""Who reads or writes the file now, and the moments at which nobody does."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import msgspec


class Passing(Enum):
    """What lasts: a query for as long as its rows are fetched, a seal for about a second."""

    QUERY = "query"
    SEAL = "seal"


class Haste(msgspec.Struct, frozen=True):
    """How long a moment without anybody is waited for; then, new seals held up, for those under way; then for queries."""

    patience_seconds: float
    seals_seconds: float
    queries_seconds: float


AT_LEISURE = Haste(10.0, 2.0, 0.25)
PRESSING = Haste(1.0, 10.0, 2.0)
# Only what has begun must not be seen by who is alone: a checkpoint looks once, and then lets others work beside it.
_BEGUN_SECONDS = 0.2


class Traffic:
    """Those who pass wait only for whoever is alone, and that is for moments."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = dict.fromkeys(Passing, 0)
        self._held: frozenset[Passing] = frozenset()
        self._last_passed = dict.fromkeys(Passing, time.monotonic())
        # Up to the moment at which the seals under way began, where there are some.
        self._sealing_seconds = 0.0
        self._sealing_since = 0.0

    @property
    def sealing_seconds(self) -> float:
        """For how long in all some seal has been under way."""
        with self._changed:
            under_way = time.monotonic() - self._sealing_since if self._under_way[Passing.SEAL] else 0.0
            return self._sealing_seconds + under_way

    @property
    def quiet_seconds(self) -> float:
        """For how long nobody has passed."""
        return min(map(self.seconds_without, Passing))

    def seconds_without(self, kind: Passing) -> float:
        """For how long nobody of that kind has passed."""
        with self._changed:
            return 0.0 if self._under_way[kind] else time.monotonic() - self._last_passed[kind]

    @contextmanager
    def passing(self, kind: Passing) -> Iterator[None]:
        """Around every transaction on the file that may last."""
        with self._changed:
            self._changed.wait_for(lambda: kind not in self._held)
            self._count(kind, 1)
        try:
            yield
        finally:
            with self._changed:
                self._count(kind, -1)
                self._last_passed[kind] = time.monotonic()
                self._changed.notify_all()

    def _count(self, kind: Passing, change: int) -> None:
        was, now = self._under_way[kind], time.monotonic()
        self._under_way[kind] = was + change
        if kind is Passing.SEAL and not was:
            self._sealing_since = now
        elif kind is Passing.SEAL and not self._under_way[kind]:
            self._sealing_seconds += now - self._sealing_since

    @contextmanager
    def alone(self, haste: Haste = AT_LEISURE, *, throughout: bool = False) -> Iterator[bool]:
        """Whether nobody passes when the block begins; others go on a moment later, or `throughout` when it has ended."""
        with self._changed:
            is_alone = self._changed.wait_for(self._is_free, haste.patience_seconds) or self._cleared(haste)
            self._held = frozenset(Passing)
        going_on = threading.Timer(_BEGUN_SECONDS, self._let_pass)
        if not throughout:
            going_on.start()
        try:
            yield is_alone
        finally:
            going_on.cancel()
            self._let_pass()

    def _let_pass(self) -> None:
        with self._changed:
            self._held = frozenset()
            self._changed.notify_all()

    def _cleared(self, haste: Haste) -> bool:
        """Hold up seals until those under way are through, then queries for a moment."""
        self._held = frozenset({Passing.SEAL})
        self._changed.wait_for(lambda: not self._under_way[Passing.SEAL], haste.seals_seconds)
        self._held = frozenset(Passing)
        return self._changed.wait_for(self._is_free, haste.queries_seconds)

    def _is_free(self) -> bool:
        return not any(self._under_way.values())
