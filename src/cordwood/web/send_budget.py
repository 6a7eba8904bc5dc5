"""The memory budget of answers that are being sent to slow clients, in total and by account."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.body_budget import BodyBudget, Reservation
from cordwood.web.asgi import PIECE_BYTES


class _Body(msgspec.Struct):
    """A body that is being sent, possibly to several clients at once if it is a cached answer."""

    reservation: Reservation
    ended: ExitStack
    cuts: list[Callable[[], None]]

    def cut(self) -> None:
        for cut in self.cuts:
            cut()


class SendBudget:
    """Reserves memory for large bodies. No account keeps more than half of it while others need memory.

    When the budget is exhausted, connections of the account with too much are aborted, the largest answers first, and
    those that have not read for several seconds. Not thread-safe: use it on the event loop.
    """

    def __init__(self, most_bytes: int) -> None:
        self._budget = BodyBudget(most_bytes, refusal=no_room, most_bodies=most_bytes // PIECE_BYTES + 1)
        self._bodies: dict[int, _Body] = {}

    @contextmanager
    def held(self, body: bytes, account: str, cut: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Reserve memory while a body is sent; yield the callback for its progress.

        Raise Busy if the budget is exhausted.
        """
        if len(body) <= PIECE_BYTES:
            yield nothing_moved
            return
        sent = self._bodies.get(id(body)) or self._begun(body, account)
        sent.cuts.append(cut)
        try:
            yield sent.reservation.moved
        finally:
            sent.cuts.remove(cut)
            if not sent.cuts:
                sent.ended.close()

    def _begun(self, body: bytes, account: str) -> _Body:
        with ExitStack() as ended:
            reservation = ended.enter_context(self._budget.reserve(account))
            reservation.take(len(body))
            sent = self._bodies[id(body)] = _Body(reservation, ended.pop_all(), [])
        reservation.on_revoke(sent.cut)
        sent.ended.callback(self._bodies.pop, id(body))
        return sent


def no_room() -> Busy:
    return Busy(
        "Answers that were not read yet hold all the budget there is for them.",
        hint="Read answers before asking for more, or ask for smaller ones.",
        retry_after=2,
    )


def nothing_moved() -> None:
    """Do nothing: a small body is not counted."""
