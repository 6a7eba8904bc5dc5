"""Answers kept in memory stay within their budget."""

from dataclasses import dataclass

from cordwood.cache.in_memory import OVERHEAD_BYTES, MemoryCache


@dataclass
class Kept:
    size: int


def entry(size: int = 0) -> Kept:
    return Kept(size)


def test_what_was_put_is_found_again() -> None:
    cache, kept = MemoryCache(100_000), entry()
    cache.put(b"a", kept)
    assert cache.get(b"a") is kept
    assert cache.get(b"b") is None


def test_the_least_recently_used_goes_first() -> None:
    cache = MemoryCache(OVERHEAD_BYTES * 5)
    for name in (b"a", b"b", b"c", b"d", b"e"):
        cache.put(name, entry())
    cache.get(b"a")
    cache.put(b"f", entry())
    assert cache.peek(b"a") is not None
    assert cache.peek(b"b") is None


def test_peeking_is_not_using() -> None:
    cache = MemoryCache(OVERHEAD_BYTES * 4)
    for name in (b"a", b"b", b"c", b"d"):
        cache.put(name, entry())
    cache.peek(b"a")
    cache.put(b"e", entry())
    assert cache.peek(b"a") is None


def test_an_answer_too_large_for_the_budget_is_not_kept_and_pushes_nothing_out() -> None:
    cache = MemoryCache(100_000)
    cache.put(b"small", entry(1000))
    cache.put(b"large", entry(50_000))
    assert cache.peek(b"large") is None
    assert cache.peek(b"small") is not None


def test_putting_again_replaces_and_counts_once() -> None:
    cache = MemoryCache(100_000)
    cache.put(b"a", entry(1000))
    cache.put(b"a", entry(3000))
    assert cache.size() == 3000 + OVERHEAD_BYTES
    cache.drop(b"a")
    assert cache.size() == 0


def test_an_entry_that_grew_is_counted_with_its_new_size_when_used() -> None:
    cache, kept = MemoryCache(100_000), entry(1000)
    cache.put(b"a", kept)
    kept.size = 2000
    cache.get(b"a")
    assert cache.size() == 2000 + OVERHEAD_BYTES


def test_dropping_what_is_not_there_does_nothing() -> None:
    cache = MemoryCache(100_000)
    cache.drop(b"a")
    assert cache.size() == 0


def test_many_entries_never_pass_the_budget() -> None:
    cache = MemoryCache(1_000_000)
    for number in range(2000):
        cache.put(str(number).encode(), entry(number))
        assert cache.size() <= 1_000_000
