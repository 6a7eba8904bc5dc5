"""The present speed of the machine that runs the tests, by which tests scale their time limits."""

import time

# The duration of the measured loop on the machine for which the limits were chosen.
_REFERENCE_SECONDS = 0.03
_LOOP_COUNT = 500_000


def slowness() -> float:
    """Return how many times slower the machine is now than the reference machine, but at least 1.

    Other work on the machine makes it slower. The median of three measurements ignores a single interruption.
    """
    return max(1.0, sorted(_loop_seconds() for _ in range(3))[1] / _REFERENCE_SECONDS)


def scaled(seconds: float) -> float:
    """Return a time limit in seconds, adapted to the present speed of the machine."""
    return seconds * slowness()


def _loop_seconds() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(_LOOP_COUNT):
        total += number
    return time.perf_counter() - began
