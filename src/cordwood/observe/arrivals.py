"""The recent event rate of each stream."""

import time
from collections import deque
from collections.abc import Callable

from cordwood.observe.observation import Ingested

LATELY_SECONDS = 60


class Arrivals:
    """Counts by second over one minute. `note` is not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._counts: dict[str, deque[tuple[int, int]]] = {}

    def note(self, ingested: Ingested) -> None:
        if not ingested.accepted:
            return
        counts = self._counts.setdefault(ingested.stream, deque(maxlen=LATELY_SECONDS + 1))
        second = int(self._clock())
        if counts and counts[-1][0] == second:
            counts[-1] = (second, counts[-1][1] + ingested.accepted)
        else:
            counts.append((second, ingested.accepted))

    def per_second(self, stream: str) -> float:
        now = self._clock()
        since = now - LATELY_SECONDS
        events = sum(count for second, count in list(self._counts.get(stream, ())) if second >= since)
        return events / max(1.0, min(LATELY_SECONDS, now - self._began))
