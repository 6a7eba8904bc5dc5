"""The deadline that a delivery has to keep."""

import time


class Deadline:
    """The moment at which a delivery is given up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def remaining(self) -> float:
        """Return the seconds that are left; raise TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
