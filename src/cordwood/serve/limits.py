"""What answers may cost, one by one and all together."""

import os

import msgspec

LEAST_PLACES = 4


class ServeLimits(msgspec.Struct, frozen=True):
    """`concurrent_queries` of 0 means: from the cores."""

    query_seconds: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024
    concurrent_queries: int = 0
    queued_queries: int = 200
    queue_seconds: float = 10.0
    key_requests_per_second: float | None = None
    key_concurrent_queries: int | None = None
    # What compiled statements may hold together, and the trees of endpoints as much.
    compiled_bytes: int = 16 * 2**20

    def places(self) -> int:
        """How many queries run at once: two a core, since one of them waits or is about to end."""
        return self.concurrent_queries or max(LEAST_PLACES, 2 * (os.cpu_count() or 1))
