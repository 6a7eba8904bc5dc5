"""The memory of answers that are being sent: bounded in all and by account, however slowly their readers read."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.holding import HoldingRoom, Share
from cordwood.web.asgi import PIECE_BYTES


class _Body(msgspec.Struct):
    """A body that is sent, perhaps to several readers at once: then it is one cached answer."""

    share: Share
    ended: ExitStack
    cuts: list[Callable[[], None]]

    def cut(self) -> None:
        for cut in self.cuts:
            cut()


class Sending:
    """Large bodies on their way out, of which no account holds more than half while others ask for room.

    Where there is no room, the connections of the account that has too much are cut, those with the largest answers
    first, and those that have not read for seconds. Used from the event loop alone.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = HoldingRoom(most_bytes, refusal=no_room, most_bodies=most_bytes // PIECE_BYTES + 1)
        self._bodies: dict[int, _Body] = {}

    @contextmanager
    def held(self, body: bytes, account: str, cut: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Hold a body while it is sent; yields what is to be called when the reader has taken a piece.

        Busy when there is no room for the body.
        """
        if len(body) <= PIECE_BYTES:
            yield nothing_moved
            return
        sent = self._bodies.get(id(body)) or self._begun(body, account)
        sent.cuts.append(cut)
        try:
            yield sent.share.moved
        finally:
            sent.cuts.remove(cut)
            if not sent.cuts:
                sent.ended.close()

    def _begun(self, body: bytes, account: str) -> _Body:
        with ExitStack() as ended:
            share = ended.enter_context(self._room.share(account))
            share.take(len(body))
            sent = self._bodies[id(body)] = _Body(share, ended.pop_all(), [])
        share.on_revoke(sent.cut)
        sent.ended.callback(self._bodies.pop, id(body))
        return sent


def no_room() -> Busy:
    return Busy(
        "Answers that were not read yet hold all the room there is for them.",
        hint="Read answers before asking for more, or ask for smaller ones.",
        retry_after=2,
    )


def nothing_moved() -> None:
    """A small body is not counted."""
