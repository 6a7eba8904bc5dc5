"""What answers may cost, one by one and all together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """`concurrent_queries` of 0 means: from the cores."""

    query_seconds: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024
    concurrent_queries: int = 0
    queued_queries: int = 200
    queue_seconds: float = 10.0
    key_requests_per_second: float | None = None
    key_concurrent_queries: int | None = None
