"""The failure of a delivery, and the deadline that it has to keep."""

import time


class DeliveryFailed(Exception):
    """A notification was not delivered.

    `reason` is a sentence without secrets. `retry_after_seconds` is when the target wants it again, if it says so.
    """

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


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
