"""Who reads or writes the file now, and the moments at which nobody does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Traffic:
    """Those who pass wait only for whoever is alone, and that is for moments."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._is_held = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Around every transaction on the file that may last."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_held)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, patience_seconds: float, hold_seconds: float) -> Iterator[bool]:
        """Whether nobody passes while the block lasts.

        It waits for such a moment to come by itself, then for at most `hold_seconds` while others are held up.
        """
        with self._changed:
            is_alone = self._changed.wait_for(self._is_free, patience_seconds)
            self._is_held = True
            is_alone = is_alone or self._changed.wait_for(self._is_free, hold_seconds)
        try:
            yield is_alone
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def _is_free(self) -> bool:
        return not self._under_way
