"""Which ids a stream has taken lately: the first event of an id stays, later ones are counted and left."""

from collections.abc import Callable, Iterable, Sequence

WINDOW_US = 600 * 1_000_000
WINDOW_EVENTS = 100_000

# Says which of the ids are among the stream's sealed events of the window, those received before a time.
Recall = Callable[[Sequence[str], int], set[str]]

_ANY_TIME = 2**62


class RecentIds:
    """The last events' ids exactly; what a fast stream took before them, within the window, by a sieve.

    What the sieve catches is looked up, and at first everything, among what was stored before `opened_us`: with
    `inherits` there is some.
    """

    def __init__(self, recall: Recall, opened_us: int, *, inherits: bool) -> None:
        self._recall = recall
        self._opened_us = opened_us
        self._inherits = inherits
        self._younger: set[int] = set()
        self._elder: set[int] = set()
        self._sieves = _Sieves()
        self._taken = 0

    def duplicates(self, ids: Sequence[str], now_us: int) -> set[int]:
        """The places in `ids` whose id was taken before, in this list or earlier."""
        hashes = list(map(hash, ids))
        found = _repeated(hashes)
        for seen in (self._younger, self._elder):
            if not seen.isdisjoint(hashes):
                found |= {place for place, one in enumerate(hashes) if one in seen}
        found |= self._recalled(ids, self._sieves.caught(hashes, now_us), _ANY_TIME)
        if self._inherits:
            self._inherits = now_us < self._opened_us + WINDOW_US or self._taken < WINDOW_EVENTS
            found |= self._recalled(ids, range(len(ids)), self._opened_us)
        return found

    def _recalled(self, ids: Sequence[str], places: Sequence[int], before_us: int) -> set[int]:
        if not places:
            return set()
        recalled = self._recall([ids[place] for place in places], before_us)
        return {place for place in places if ids[place] in recalled} if recalled else set()

    def take(self, ids: Iterable[str], now_us: int) -> None:
        before = len(self._younger)
        self._younger.update(map(hash, ids))
        self._taken += len(self._younger) - before
        if len(self._younger) >= WINDOW_EVENTS:
            self._sieves.add(self._elder, now_us)
            self._elder, self._younger = self._younger, set()


class _Sieves:
    """Two Bloom filters that take turns: together they hold at least what the window has seen."""

    def __init__(self) -> None:
        self._current: _Sieve | None = None
        self._former: _Sieve | None = None
        self._since_us = 0

    def add(self, hashes: Iterable[int], now_us: int) -> None:
        if self._current is None or now_us - self._since_us > WINDOW_US:
            self._former, self._current, self._since_us = self._current, _Sieve(), now_us
        self._current.add(hashes)

    def caught(self, hashes: Sequence[int], now_us: int) -> Sequence[int]:
        if self._current is None or now_us - self._since_us > 2 * WINDOW_US:
            self._former = self._current = None
            return ()
        places = self._current.caught(hashes)
        return places if self._former is None else sorted({*places, *self._former.caught(hashes)})


class _Sieve:
    """Three bits for each hash among 2^26: one in 500 is caught wrongly at three million."""

    _MASK = (1 << 26) - 1

    def __init__(self) -> None:
        self._bits = bytearray((self._MASK + 1) // 8)

    def add(self, hashes: Iterable[int]) -> None:
        bits, mask = self._bits, self._MASK
        for one in hashes:
            for at in (one & mask, (one >> 19) & mask, (one >> 38) & mask):
                bits[at >> 3] |= 1 << (at & 7)

    def caught(self, hashes: Sequence[int]) -> list[int]:
        bits, mask = self._bits, self._MASK
        return [
            place
            for place, one in enumerate(hashes)
            if bits[(one & mask) >> 3] >> (one & 7) & 1
            and bits[(at := (one >> 19) & mask) >> 3] >> (at & 7) & 1
            and bits[(at := (one >> 38) & mask) >> 3] >> (at & 7) & 1
        ]


def _repeated(hashes: Sequence[int]) -> set[int]:
    if len(set(hashes)) == len(hashes):
        return set()
    seen: set[int] = set()
    repeated = set()
    for place, one in enumerate(hashes):
        if one in seen:
            repeated.add(place)
        seen.add(one)
    return repeated
