"""The speed of the machine that runs the tests, by which they scale their limits in seconds."""

import time

# The time of the measured loop on a machine of the speed for which the limits were chosen.
_REFERENCE_SECONDS = 0.03
_LOOP_COUNT = 500_000


def slowness() -> float:
    """Return how many times slower the machine is at present than the reference, at least 1.

    Other work of the machine counts too. The median of three measurements excludes a single interruption.
    """
    return max(1.0, sorted(_loop_seconds() for _ in range(3))[1] / _REFERENCE_SECONDS)


def scaled(seconds: float) -> float:
    """Return the limit in seconds for a machine of the present speed."""
    return seconds * slowness()


def _loop_seconds() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(_LOOP_COUNT):
        total += number
    return time.perf_counter() - began
