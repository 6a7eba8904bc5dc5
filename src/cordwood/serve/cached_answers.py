"""Cached answers: the cache, its keys, the refreshes, and the ages at which an answer becomes stale and expires.

Requests share a cached answer if their compiled statements, values and formats are equal. The texts of their queries
are not compared: different texts share an answer if they compile to the same statement. An index from request digests
to cache keys finds the answer to a repeated request without compiling the request again.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from decimal import Decimal
from hashlib import sha256
from typing import Protocol

import msgspec

from cordwood.bounded_cache import CACHE_ENTRY_OVERHEAD_BYTES, BoundedCache, estimate_memory_bytes
from cordwood.catalog.catalog import Catalog
from cordwood.errors import Fault
from cordwood.model.definitions import Endpoint
from cordwood.observe.observation import CachedAnswerRefreshed, Observer
from cordwood.serve.compilation import StatementKey
from cordwood.serve.jobs import CompleteAnswer
from cordwood.serve.query_request import QueryRequest
from cordwood.sql.stages import BoundStatement


class _SizedEntry(Protocol):
    """An object that knows its size in bytes."""

    @property
    def size_bytes(self) -> int: ...


class AnswerCache(Protocol):
    """The interface of a cache of answers. Use it on the event loop only. Its methods never raise an error.

    An answer that is too large for the cache is not stored.
    """

    def get(self, key: bytes) -> _SizedEntry | None:
        """Return the entry with this key, if any, and mark it as the most recently used.

        The cache measures the size of the entry again, because compressed bodies may have been added to the entry.
        """

    def peek(self, key: bytes) -> _SizedEntry | None:
        """Return the entry with this key, if any, without marking it as used."""

    def put(self, key: bytes, entry: _SizedEntry) -> None:
        """Store an entry, and evict the least recently used entries until the cache is within its budget."""

    def drop(self, key: bytes) -> None:
        """Remove an entry, if it exists."""

    def size_bytes(self) -> int:
        """Return the total size of all entries in bytes."""

    def budget_bytes(self) -> int:
        """Return the maximum total size of all entries in bytes."""


# The estimated bytes that a cache entry takes besides its body: its key, its receipt and its request.
ANSWER_ENTRY_OVERHEAD_BYTES = 2048


class MemoryAnswerCache:
    """An LRU cache of at most `budget_bytes`; an answer larger than a quarter of the budget is not stored."""

    def __init__(self, budget_bytes: int) -> None:
        self._entries: BoundedCache[bytes, _SizedEntry] = BoundedCache(budget_bytes, _entry_size)

    def get(self, key: bytes) -> _SizedEntry | None:
        self._entries.update_size(key)
        return self._entries.get(key)

    def peek(self, key: bytes) -> _SizedEntry | None:
        return self._entries.peek(key)

    def put(self, key: bytes, entry: _SizedEntry) -> None:
        self._entries.put(key, entry)

    def drop(self, key: bytes) -> None:
        self._entries.drop(key)

    def size_bytes(self) -> int:
        return self._entries.held_bytes

    def budget_bytes(self) -> int:
        return self._entries.max_bytes


def _entry_size(_: bytes, entry: _SizedEntry) -> int:
    return entry.size_bytes + ANSWER_ENTRY_OVERHEAD_BYTES - CACHE_ENTRY_OVERHEAD_BYTES


def cache_key(request: QueryRequest, question: BoundStatement) -> bytes:
    """Return the key under which the answer to a request is cached.

    The key depends on all values that are bound to the statement, including those that the caller's pins set.
    """
    parts = (
        request.endpoint.id.bytes,
        request.endpoint.revision,
        bound_statement_digest(question),
        request.is_redacted,
        request.format.name,
        request.max_rows,
        request.position,
    )
    return sha256(msgspec.msgpack.encode(parts)).digest()


def bound_statement_digest(question: BoundStatement) -> bytes:
    """Return a digest of a question, that is, of its statement and its bound values except the time of the call."""
    return sha256(msgspec.msgpack.encode((question.statement.digest, _parameter_values(question)))).digest()


def _parameter_values(question: BoundStatement) -> list[tuple[str, str, str]]:
    """Return the name, type and text of each value that is bound to a parameter, except the time of the call."""
    names = {slot.name for slot in question.statement.slots if slot.parameter is not None}
    return [(name, *_type_and_text(question.values[name])) for name in sorted(names & question.values.keys())]


def _type_and_text(value: object) -> tuple[str, str]:
    """Return the name of a value's type, and a text that differs for any two different values of this type."""
    return type(value).__name__, _exact_decimal_text(value) if isinstance(value, Decimal) else repr(value)


def _exact_decimal_text(value: Decimal) -> str:
    """Return the exact value of a decimal number as text, without trailing zeros.

    Decimal.normalize() is not used, because it would round the number to 28 digits.
    """
    sign, digits, exponent = value.as_tuple()
    digits_text = "".join(map(str, digits))
    shortened = digits_text.rstrip("0")
    return f"{sign} {shortened} {int(exponent) + len(digits_text) - len(shortened)}"


MAX_INDEXED_REQUESTS = 20_000


def request_digest(request: QueryRequest, compiled_from: StatementKey) -> bytes:
    """Return a digest of everything on which an answer depends: compilation inputs, raw values, pins and format."""
    endpoint = request.endpoint
    values = [request.parameters.get(parameter.name) for parameter in endpoint.parameters]
    inputs = (endpoint.id.bytes, compiled_from, values, request.format.name, request.sorted_pins)
    return sha256(msgspec.msgpack.encode(inputs)).digest()


class CacheKeyIndex:
    """An index from request digests to cache keys. An entry is valid until its cached answer expires.

    The cache key also depends on the shapes of the streams, so the same request may get another cache key later. The
    answer under the old key remains valid until it expires; after that, the request is compiled again.
    """

    def __init__(self) -> None:
        self._keys_and_expiries_by_digest: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def find(self, digest: bytes, now_us: int) -> bytes | None:
        """Return the cache key of a request, or None if the request is not in the index or its answer has expired."""
        entry = self._keys_and_expiries_by_digest.get(digest)
        return None if entry is None or now_us >= entry[1] else entry[0]

    def add(self, digest: bytes, key: bytes, until_us: int) -> None:
        self._keys_and_expiries_by_digest[digest] = (key, until_us)
        self._keys_and_expiries_by_digest.move_to_end(digest)
        if len(self._keys_and_expiries_by_digest) > MAX_INDEXED_REQUESTS:
            self._keys_and_expiries_by_digest.popitem(last=False)


MICROSECONDS_PER_SECOND = 1_000_000

# A refresh starts some time before the answer is `warm_seconds` old, so that it can end in time. The lead is between
# these two shares of `warm_seconds`. It depends on the cache key, so that entries made at the same time are not
# refreshed at the same time.
MIN_LEAD_SHARE, MAX_LEAD_SHARE = 0.02, 0.10
# After the first failure, the refresh is tried again after FIRST_RETRY_SHARE times `warm_seconds`. The pause doubles
# with each further failure, up to LAST_RETRY_SHARE times `warm_seconds`.
FIRST_RETRY_SHARE, LAST_RETRY_SHARE = 1 / 30, 1 / 5


class CachedAnswer(msgspec.Struct):
    """A cached answer, with the request that it answers.

    `last_requested_us` is the time of the last request for the answer. `refresh_failures` is the number of failed
    refreshes, and `last_failed_us` is the time of the last failure.
    """

    key: bytes
    request: QueryRequest
    answer: CompleteAnswer
    last_requested_us: int
    refresh_failures: int = 0
    last_failed_us: int = 0
    request_bytes: int = 0

    def __post_init__(self) -> None:
        request = self.request
        self.request_bytes = estimate_memory_bytes(
            (request.parameters, request.sandbox, request.endpoint if request.is_ad_hoc else None)
        )

    @property
    def size_bytes(self) -> int:
        return self.answer.size_bytes + self.request_bytes

    @property
    def created_us(self) -> int:
        return self.answer.receipt.created_us


def age_us(entry: CachedAnswer, now_us: int) -> int:
    return max(0, now_us - entry.created_us)


def expiry_us(entry: CachedAnswer) -> int:
    return entry.created_us + int(entry.request.endpoint.cache_seconds * MICROSECONDS_PER_SECOND)


def is_expired(entry: CachedAnswer, now_us: int) -> bool:
    return now_us >= expiry_us(entry)


def is_stale(entry: CachedAnswer, now_us: int) -> bool:
    """Return whether the answer is older than the endpoint's `warm_seconds` because a refresh failed."""
    warm = entry.request.endpoint.warm_seconds
    return warm is not None and entry.refresh_failures > 0 and age_us(entry, now_us) >= warm * MICROSECONDS_PER_SECOND


def was_requested_recently(entry: CachedAnswer, now_us: int) -> bool:
    """Return whether the answer was requested within the last `cache_seconds` of its endpoint."""
    return now_us - entry.last_requested_us < entry.request.endpoint.cache_seconds * MICROSECONDS_PER_SECOND


def next_refresh_us(entry: CachedAnswer) -> int:
    """Return the time of the answer's next refresh or, if its endpoint is not kept warm, the time when it expires."""
    warm = entry.request.endpoint.warm_seconds
    if not warm:
        return expiry_us(entry)
    if entry.refresh_failures:
        pause = warm * min(LAST_RETRY_SHARE, FIRST_RETRY_SHARE * 2 ** min(entry.refresh_failures - 1, 10))
        return entry.last_failed_us + int(pause * MICROSECONDS_PER_SECOND)
    return entry.created_us + int(warm * (1 - _refresh_lead_share(entry.key)) * MICROSECONDS_PER_SECOND)


def max_age_seconds(endpoint: Endpoint) -> float:
    """Return the number of seconds for which an answer counts as fresh: the `max-age` in its response."""
    return endpoint.warm_seconds or endpoint.cache_seconds


def _refresh_lead_share(key: bytes) -> float:
    return MIN_LEAD_SHARE + (MAX_LEAD_SHARE - MIN_LEAD_SHARE) * key[0] / 255


REFRESH_POLL_SECONDS = 1.0
# The schedule is searched for evicted entries only if it has at least this many entries.
MIN_SCHEDULE_CLEANUP_ENTRIES = 1000


class AnswerRefresher:
    """Schedules refreshes of cached answers. `refresh_answer` runs a request again and replaces the cached answer."""

    def __init__(
        self,
        cache: AnswerCache,
        catalog: Catalog,
        observer: Observer,
        clock_us: Callable[[], int],
        refresh_answer: Callable[[QueryRequest, CachedAnswer], Awaitable[None]],
    ) -> None:
        self._answer_cache = cache
        self._catalog = catalog
        self._observer = observer
        self._clock_us = clock_us
        self._refresh_answer = refresh_answer
        self._scheduled_times_and_keys: list[tuple[int, bytes]] = []
        self._scheduled_keys: set[bytes] = set()
        self._schedule_cleanup_threshold = MIN_SCHEDULE_CLEANUP_ENTRIES
        self._refresh_tasks: dict[bytes, asyncio.Task[None]] = {}
        self._endpoint_revisions = self._current_endpoint_revisions()

    def schedule_refresh(self, entry: CachedAnswer) -> None:
        if entry.key not in self._scheduled_keys:
            if len(self._scheduled_times_and_keys) >= self._schedule_cleanup_threshold:
                self._unschedule_evicted_answers()
            self._scheduled_keys.add(entry.key)
            heapq.heappush(self._scheduled_times_and_keys, (next_refresh_us(entry), entry.key))

    def _unschedule_evicted_answers(self) -> None:
        """Remove the answers from the schedule that the cache has evicted.

        Otherwise, the schedule could have far more entries than the cache.
        """
        self._scheduled_times_and_keys = [
            (time, key) for time, key in self._scheduled_times_and_keys if self._answer_cache.peek(key) is not None
        ]
        heapq.heapify(self._scheduled_times_and_keys)
        self._scheduled_keys = {key for _, key in self._scheduled_times_and_keys}
        self._schedule_cleanup_threshold = max(MIN_SCHEDULE_CLEANUP_ENTRIES, 2 * len(self._scheduled_times_and_keys))

    async def run(self) -> None:
        while True:
            self.start_due_refreshes()
            await asyncio.sleep(REFRESH_POLL_SECONDS)

    async def close(self) -> None:
        """Cancel the running refreshes, which is safe because no caller waits for them."""
        refreshing = list(self._refresh_tasks.values())
        for task in refreshing:
            task.cancel()
        await asyncio.gather(*refreshing, return_exceptions=True)

    def start_due_refreshes(self) -> list["asyncio.Task[None]"]:
        """Refresh or drop each answer whose scheduled time has come; return the tasks of the started refreshes."""
        now_us = self._clock_us()
        self._reschedule_changed_endpoints()
        started = []
        while self._scheduled_times_and_keys and self._scheduled_times_and_keys[0][0] <= now_us:
            _, key = heapq.heappop(self._scheduled_times_and_keys)
            self._scheduled_keys.discard(key)
            task = self._refresh_or_drop_answer(key, now_us)
            if task is not None:
                started.append(task)
        return started

    def _reschedule_changed_endpoints(self) -> None:
        """Move the cached answers of changed endpoints to the front of the schedule, so that they are due at once."""
        revisions = self._current_endpoint_revisions()
        if revisions == self._endpoint_revisions:
            return
        self._endpoint_revisions = revisions
        self._scheduled_times_and_keys = [
            (0 if self._has_outdated_endpoint(key) else time, key) for time, key in self._scheduled_times_and_keys
        ]
        heapq.heapify(self._scheduled_times_and_keys)

    def _current_endpoint_revisions(self) -> dict[str, str]:
        return {str(endpoint.id): endpoint.revision for endpoint in self._catalog.endpoints()}

    def _has_outdated_endpoint(self, key: bytes) -> bool:
        entry = self._answer_cache.peek(key)
        if not isinstance(entry, CachedAnswer):
            return True
        return self._endpoint_revisions.get(str(entry.request.endpoint.id)) != entry.request.endpoint.revision

    def _refresh_or_drop_answer(self, key: bytes, now_us: int) -> "asyncio.Task[None] | None":
        entry = self._answer_cache.peek(key)
        if not isinstance(entry, CachedAnswer):
            return None
        outdated = self._has_outdated_endpoint(key)
        if outdated or is_expired(entry, now_us) or not was_requested_recently(entry, now_us):
            self._answer_cache.drop(key)
        if was_requested_recently(entry, now_us) and entry.request.endpoint.warm_seconds:
            return self._start_refresh(entry)
        return None

    def _start_refresh(self, entry: CachedAnswer) -> "asyncio.Task[None] | None":
        endpoint = self._catalog.endpoint(str(entry.request.endpoint.id))
        if endpoint is None or not endpoint.warm_seconds or entry.key in self._refresh_tasks:
            return None
        task = asyncio.ensure_future(
            self._run_refresh(entry, msgspec.structs.replace(entry.request, endpoint=endpoint))
        )
        self._refresh_tasks[entry.key] = task
        task.add_done_callback(lambda _: self._refresh_tasks.pop(entry.key, None))
        return task

    async def _run_refresh(self, entry: CachedAnswer, request: QueryRequest) -> None:
        outcome = "ok"
        try:
            await self._refresh_answer(request, entry)
        except Fault as fault:
            outcome = fault.code
            entry.refresh_failures += 1
            entry.last_failed_us = self._clock_us()
            if self._answer_cache.peek(entry.key) is entry:
                self.schedule_refresh(entry)
        self._observer.record(
            CachedAnswerRefreshed(endpoint=request.endpoint.name, outcome=outcome, failures=entry.refresh_failures)
        )
