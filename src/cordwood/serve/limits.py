"""The limits of single answers and of the query path as a whole."""

import os

import msgspec

LEAST_PLACES = 4


class ServeLimits(msgspec.Struct, frozen=True):
    """Limits of the query path. With `concurrent_queries` 0, the number of slots follows from the cores."""

    query_seconds: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024
    concurrent_queries: int = 0
    queued_queries: int = 200
    queue_seconds: float = 10.0
    key_requests_per_second: float | None = None
    key_concurrent_queries: int | None = None
    # The byte budget of compiled statements, and as much again for the trees of endpoints.
    compiled_bytes: int = 16 * 2**20

    def places(self) -> int:
        """Return the number of slots: two for each core, since a run is often waiting for input or output."""
        return self.concurrent_queries or max(LEAST_PLACES, 2 * (os.cpu_count() or 1))
