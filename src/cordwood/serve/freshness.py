"""Freshness of cached answers: pure functions of their age that decide fresh, stale, due and expired."""

import msgspec

from cordwood.bounded_cache import bytes_of
from cordwood.model.endpoint import Endpoint
from cordwood.serve.ask import Ask
from cordwood.serve.finished import Finished

SECOND_US = 1_000_000

# A refresh starts before the answer is `warm` seconds old, earlier by a lead between these two shares. The lead depends
# on the cache key, so that entries made together are not refreshed together.
LEAST_LEAD, MOST_LEAD = 0.02, 0.10
# A failed refresh is retried after the first share of `warm` seconds, doubling up to the second share.
FIRST_RETRY, LAST_RETRY = 1 / 30, 1 / 5


class Entry(msgspec.Struct):
    """A cached answer and the request that made it."""

    key: bytes
    ask: Ask
    finished: Finished
    asked_us: int
    failures: int = 0
    failed_us: int = 0
    ask_bytes: int = 0

    def __post_init__(self) -> None:
        ask = self.ask
        self.ask_bytes = bytes_of((ask.parameters, ask.sandbox, ask.endpoint if ask.is_ad_hoc else None))

    @property
    def size(self) -> int:
        return self.finished.size + self.ask_bytes

    @property
    def made_us(self) -> int:
        return self.finished.receipt.made_us


def age_us(entry: Entry, now_us: int) -> int:
    return max(0, now_us - entry.made_us)


def expires_us(entry: Entry) -> int:
    return entry.made_us + int(entry.ask.endpoint.cache_seconds * SECOND_US)


def is_expired(entry: Entry, now_us: int) -> bool:
    return now_us >= expires_us(entry)


def is_stale(entry: Entry, now_us: int) -> bool:
    """Return whether the answer is older than `warm` seconds because its refresh failed."""
    warm = entry.ask.endpoint.warm_seconds
    return warm is not None and entry.failures > 0 and age_us(entry, now_us) >= warm * SECOND_US


def is_wanted(entry: Entry, now_us: int) -> bool:
    """Return whether it was requested within one cache lifetime."""
    return now_us - entry.asked_us < entry.ask.endpoint.cache_seconds * SECOND_US


def due_us(entry: Entry) -> int:
    """Return when to refresh the answer; its expiry if it is not refreshed."""
    warm = entry.ask.endpoint.warm_seconds
    if not warm:
        return expires_us(entry)
    if entry.failures:
        pause = warm * min(LAST_RETRY, FIRST_RETRY * 2 ** min(entry.failures - 1, 10))
        return entry.failed_us + int(pause * SECOND_US)
    return entry.made_us + int(warm * (1 - _lead(entry.key)) * SECOND_US)


def lifetime_seconds(endpoint: Endpoint) -> float:
    """Return for how many seconds an answer counts as fresh: `max-age` of its response."""
    return endpoint.warm_seconds or endpoint.cache_seconds


def _lead(key: bytes) -> float:
    return LEAST_LEAD + (MOST_LEAD - LEAST_LEAD) * key[0] / 255
