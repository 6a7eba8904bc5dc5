"""Fresh, stale, due, expired: pure decisions on the age of a kept answer."""

import msgspec

from cordwood.bounded_cache import bytes_of
from cordwood.model.endpoint import Endpoint
from cordwood.serve.ask import Ask
from cordwood.serve.finished import Finished

SECOND_US = 1_000_000

# A refresh starts a little before its time, so that the new answer is there when the old one is `warm` seconds
# old; each identity has a lead of its own, so that entries made together are not refreshed together.
LEAST_LEAD, MOST_LEAD = 0.02, 0.10
# A failed refresh is tried again after the first share of `warm`, later each time up to the second.
FIRST_RETRY, LAST_RETRY = 1 / 30, 1 / 5


class Entry(msgspec.Struct):
    """A kept answer, and how to ask for it again."""

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
    """Older than it ought to be: a refresh has failed."""
    warm = entry.ask.endpoint.warm_seconds
    return warm is not None and entry.failures > 0 and age_us(entry, now_us) >= warm * SECOND_US


def is_wanted(entry: Entry, now_us: int) -> bool:
    """Somebody has asked for it within one lifetime."""
    return now_us - entry.asked_us < entry.ask.endpoint.cache_seconds * SECOND_US


def due_us(entry: Entry) -> int:
    """When it is to be refreshed; its expiry when it is never to be."""
    warm = entry.ask.endpoint.warm_seconds
    if not warm:
        return expires_us(entry)
    if entry.failures:
        pause = warm * min(LAST_RETRY, FIRST_RETRY * 2 ** min(entry.failures - 1, 10))
        return entry.failed_us + int(pause * SECOND_US)
    return entry.made_us + int(warm * (1 - _lead(entry.key)) * SECOND_US)


def lifetime_seconds(endpoint: Endpoint) -> float:
    """How long an answer is as good as new."""
    return endpoint.warm_seconds or endpoint.cache_seconds


def _lead(key: bytes) -> float:
    return LEAST_LEAD + (MOST_LEAD - LEAST_LEAD) * key[0] / 255
