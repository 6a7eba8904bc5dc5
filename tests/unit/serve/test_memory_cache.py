"""The in-memory cache of answers: its byte budget, LRU eviction and accounting."""

from dataclasses import dataclass

from cordwood.serve.cached_answers import ANSWER_ENTRY_OVERHEAD_BYTES, MemoryAnswerCache


@dataclass
class Entry:
    size_bytes: int


def entry(size: int = 0) -> Entry:
    return Entry(size)


def test_get_returns_the_entry_of_a_key() -> None:
    cache, cached = MemoryAnswerCache(100_000), entry()
    cache.put(b"a", cached)
    assert cache.get(b"a") is cached
    assert cache.get(b"b") is None


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache = MemoryAnswerCache(ANSWER_ENTRY_OVERHEAD_BYTES * 5)
    for name in (b"a", b"b", b"c", b"d", b"e"):
        cache.put(name, entry())
    cache.get(b"a")
    cache.put(b"f", entry())
    assert cache.peek(b"a") is not None
    assert cache.peek(b"b") is None


def test_peek_does_not_count_as_a_use() -> None:
    cache = MemoryAnswerCache(ANSWER_ENTRY_OVERHEAD_BYTES * 4)
    for name in (b"a", b"b", b"c", b"d"):
        cache.put(name, entry())
    cache.peek(b"a")
    cache.put(b"e", entry())
    assert cache.peek(b"a") is None


def test_a_too_large_answer_is_not_cached_and_evicts_nothing() -> None:
    cache = MemoryAnswerCache(100_000)
    cache.put(b"small", entry(1000))
    cache.put(b"large", entry(50_000))
    assert cache.peek(b"large") is None
    assert cache.peek(b"small") is not None


def test_put_replaces_the_entry_of_the_same_key() -> None:
    cache = MemoryAnswerCache(100_000)
    cache.put(b"a", entry(1000))
    cache.put(b"a", entry(3000))
    assert cache.size_bytes() == 3000 + ANSWER_ENTRY_OVERHEAD_BYTES
    cache.drop(b"a")
    assert cache.size_bytes() == 0


def test_get_counts_the_new_size_of_an_entry_that_grew() -> None:
    cache, cached = MemoryAnswerCache(100_000), entry(1000)
    cache.put(b"a", cached)
    cached.size_bytes = 2000
    cache.get(b"a")
    assert cache.size_bytes() == 2000 + ANSWER_ENTRY_OVERHEAD_BYTES


def test_drop_ignores_an_unknown_key() -> None:
    cache = MemoryAnswerCache(100_000)
    cache.drop(b"a")
    assert cache.size_bytes() == 0


def test_the_size_never_exceeds_the_budget() -> None:
    cache = MemoryAnswerCache(1_000_000)
    for number in range(2000):
        cache.put(str(number).encode(), entry(number))
        assert cache.size_bytes() <= 1_000_000
