"""Caches whose size is limited in bytes: eviction, accounting, and the measured size of values."""

import re
import sys
import tracemalloc

import msgspec
import pytest

from cordwood.bounded_cache import (
    CACHE_ENTRY_OVERHEAD_BYTES,
    BoundedCache,
    compile_pattern,
    estimate_memory_bytes,
    memoize_short_texts,
)


def text_cache(max_bytes: int) -> BoundedCache[str, str]:
    return BoundedCache(max_bytes, lambda key, value: estimate_memory_bytes((key, value)))


def test_the_least_recently_used_entry_is_evicted_when_full() -> None:
    cache: BoundedCache[int, str] = BoundedCache(5 * CACHE_ENTRY_OVERHEAD_BYTES, lambda *_: 0)
    for number in range(5):
        cache.put(number, str(number))
    assert cache.get(0) == "0"
    assert cache.peek(1) == "1"
    cache.put(5, "5")
    assert cache.get(0) == "0"
    assert cache.get(1) is None
    assert len(cache) == 5


def test_a_value_over_a_quarter_of_the_limit_is_not_cached_and_evicts_nothing() -> None:
    cache = text_cache(10_000)
    cache.put("small", "x")
    cache.put("small", "x" * 3_000)
    assert cache.get("small") is None
    cache.put("small", "x")
    cache.put("large", "x" * 3_000)
    assert cache.get("large") is None
    assert cache.get("small") == "x"


def test_replaced_and_dropped_entries_are_not_counted() -> None:
    cache = text_cache(10_000)
    cache.put("a", "x")
    bytes_before = cache.held_bytes
    cache.put("a", "y")
    assert cache.held_bytes == bytes_before
    cache.drop("a")
    cache.drop("a")
    assert cache.held_bytes == 0


def test_recount_evicts_others_for_a_value_that_grew() -> None:
    cache: BoundedCache[str, list[int]] = BoundedCache(10 * CACHE_ENTRY_OVERHEAD_BYTES, lambda _, value: len(value))
    grown: list[int] = []
    for key in "bac":
        cache.put(key, grown if key == "a" else [])
    grown.extend([0] * 8 * CACHE_ENTRY_OVERHEAD_BYTES)
    cache.update_size("a")
    cache.update_size("unknown")
    assert cache.held_bytes <= cache.max_bytes
    assert cache.get("b") is None


@pytest.mark.parametrize("text", ["x", "é", "中", "\U0001f600"], ids=ascii)
@pytest.mark.parametrize("characters", [10, 20_000])
def test_memory_of_cached_texts_stays_below_the_limit(text: str, characters: int) -> None:
    cache = text_cache(2_000_000)
    tracemalloc.start()
    try:
        for number in range(3_000_000 // (characters + 500)):
            cache.put(f"{number}", f"{number}" + text * characters)
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 500_000 < traced_bytes < 2_100_000


def test_remember_short_caches_results_of_short_texts_only() -> None:
    computed: list[str] = []

    @memoize_short_texts(max_length=3, max_entries=10)
    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    assert [length("abc"), length("abc"), length("abcd"), length("abcd")] == [3, 3, 4, 4]
    assert computed == ["abc", "abcd", "abcd"]


def test_a_long_pattern_is_purged_from_the_cache_of_re(monkeypatch: pytest.MonkeyPatch) -> None:
    purged: list[bool] = []
    monkeypatch.setattr(re, "purge", lambda: purged.append(True))
    assert compile_pattern("a+").fullmatch("aa")
    assert not purged
    assert compile_pattern("a" * 2_000).fullmatch("a" * 2_000)
    with pytest.raises(re.error):
        compile_pattern("a" * 2_000 + "(")
    assert len(purged) == 2


@pytest.mark.parametrize(
    "pattern", ["(" * 2_000 + ")" * 2_000, "a{99999999999999}", "("], ids=["deep", "often", "open"]
)
def test_any_pattern_that_python_cannot_compile_raises_re_error(pattern: str) -> None:
    with pytest.raises(re.error):
        compile_pattern(pattern)


class Pair(msgspec.Struct):
    first: object
    second: object


def test_bytes_of_counts_each_contained_object_once() -> None:
    text = "x" * 10_000
    assert estimate_memory_bytes(text) == sys.getsizeof(text)
    assert estimate_memory_bytes(Pair([text], {"a": (text,)})) < 11_000
    assert estimate_memory_bytes(Pair([text + "1"], {"a": (text + "2",)})) > 20_000
    assert estimate_memory_bytes(frozenset({text})) > 10_000
