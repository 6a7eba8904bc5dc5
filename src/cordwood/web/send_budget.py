"""The memory budget for answers that are being sent to slow clients, in all and for each account."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.body_budget import BodyBudget, Reservation
from cordwood.web.asgi import CHUNK_BYTES


class _Body(msgspec.Struct):
    """A body that is being sent; a cached answer may be sent to several clients at once."""

    reservation: Reservation
    ended: ExitStack
    aborts: list[Callable[[], None]]

    def abort(self) -> None:
        for abort in self.aborts:
            abort()


class SendBudget:
    """Reserves memory for large bodies. No account may use more than half of it while others need memory.

    When the budget is used up, connections are aborted, those with the largest answers first: connections of an account
    that uses more than half of the budget, and connections that have read nothing for several seconds. Not thread-safe:
    use it on the event loop.
    """

    def __init__(self, max_bytes: int) -> None:
        self._budget = BodyBudget(max_bytes, refusal=no_room, max_bodies=max_bytes // CHUNK_BYTES + 1)
        self._bodies: dict[int, _Body] = {}

    @contextmanager
    def held(self, body: bytes, account: str, abort: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Reserve memory while a body is sent, and yield the callback for sending progress.

        Raise Busy if the budget is used up.
        """
        if len(body) <= CHUNK_BYTES:
            yield ignore_progress
            return
        sent = self._bodies.get(id(body)) or self._begin_body(body, account)
        sent.aborts.append(abort)
        try:
            yield sent.reservation.note_progress
        finally:
            sent.aborts.remove(abort)
            if not sent.aborts:
                sent.ended.close()

    def _begin_body(self, body: bytes, account: str) -> _Body:
        with ExitStack() as ended:
            reservation = ended.enter_context(self._budget.reserve(account))
            reservation.take(len(body))
            sent = self._bodies[id(body)] = _Body(reservation, ended.pop_all(), [])
        reservation.on_revoke(sent.abort)
        sent.ended.callback(self._bodies.pop, id(body))
        return sent


def no_room() -> Busy:
    return Busy(
        "Answers that were not read yet hold all the budget there is for them.",
        hint="Read answers before asking for more, or ask for smaller ones.",
        retry_after=2,
    )


def ignore_progress() -> None:
    """Do nothing: no memory is reserved for a small body."""
