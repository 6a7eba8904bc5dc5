"""One request to the engine's process, from its creation until it is answered."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

from cordwood.engines.hosted.messages import Kind, numbered, unpacked, unpacked_problem
from cordwood.errors import Fault

_numbers = itertools.count(1)
_MOST_NUMBER = 2**32


class Call:
    """A request to the engine's process: the connection's reader adds pieces and the end, the caller takes them.

    `make` writes the request and is told whether it was sent before. `seconds` is the time limit of a query. A query is
    repeatable until a piece was `delivered`. The pieces of a `whole` answer are delivered at its end.
    """

    def __init__(
        self, kind: Kind, make: Callable[[bool], bytes], *, seconds: float | None = None, is_whole: bool = True
    ) -> None:
        self.number = next(_numbers) % _MOST_NUMBER
        self.kind = kind
        self.seconds = seconds
        self.is_whole = is_whole
        self.delivered = False
        self.times_sent = 0
        self.sent_at: float | None = None
        self.waits_since = time.monotonic()
        self.cancelled_at: float | None = None
        self.cancel_is_sent = False
        # Whether the call runs again while no other suspect does, because it may have ended the process.
        self.is_alone = False
        # The caller's fault and the time, if the keeper interrupted the call.
        self.stopped_as: Fault | None = None
        self.stopped_at = 0.0
        # The memory of the engine's process when the call began.
        self.bytes_before: int | None = None
        self._make = make
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._answer: memoryview | None = None
        self._problem: Exception | None = None

    @property
    def is_query(self) -> bool:
        return self.kind == Kind.RUN

    def frame(self) -> bytes:
        """Return the frame to send now."""
        self.times_sent += 1
        return numbered(self.number, self._make(self.times_sent > 1))

    def put(self, piece: bytes) -> None:
        with self._changed:
            self._pieces.append(piece)
            self._changed.notify()

    def succeed(self, answer: memoryview) -> None:
        self._end(answer=answer)

    def fail(self, problem: Exception) -> None:
        self._end(problem=problem)

    def fail_as_told(self, payload: memoryview) -> None:
        self._end(problem=self.stopped_as or unpacked_problem(payload))

    def begin_again(self) -> None:
        """Drop the pieces that have arrived, none of which was delivered."""
        with self._changed:
            self._pieces.clear()
        self.sent_at, self.waits_since, self.cancel_is_sent = None, time.monotonic(), False
        self.stopped_as, self.bytes_before = None, None

    def wait(self, seconds: float) -> bool:
        """Wait until the call has ended or has a piece; return False if the time is over."""
        with self._changed:
            return self._changed.wait_for(self._has_news, seconds)

    def next_piece(self) -> bytes | None:
        """Return the next piece, or None at the end of the answer; raise the fault that ended it."""
        with self._changed:
            if self._problem is not None:
                raise self._problem
            self.delivered = True
            return self._pieces.popleft() if self._pieces else None

    def answer(self) -> object:
        if self._problem is not None:
            raise self._problem
        return None if self._answer is None else unpacked(self._answer)

    @property
    def has_ended(self) -> bool:
        return self._ended

    def _has_news(self) -> bool:
        return self._ended or (bool(self._pieces) and not self.is_whole)

    def _end(self, answer: memoryview | None = None, problem: Exception | None = None) -> None:
        with self._changed:
            if not self._ended:
                self._ended, self._answer, self._problem = True, answer, problem
            self._changed.notify_all()
