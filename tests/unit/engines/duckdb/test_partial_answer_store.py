"""The store of partial answers is bounded.

A caller with many parameter values does not evict the answers that others use.
"""

import os
import time
from pathlib import Path

import pytest

from cordwood.engines.duckdb.query import partial_answers
from cordwood.engines.duckdb.query.partial_answers import (
    PartialAnswerCache,
    PartialAnswerEntry,
    PartialAnswerLimits,
    PartialRow,
    decode_partial_rows,
    merge_partial_rows,
)
from cordwood.sql.plan import MergeAggregate

STORE_LIMITS = PartialAnswerLimits(max_memory_bytes=400_000, max_disk_bytes=400_000)
COLUMN_TYPES = ["VARCHAR", "BIGINT"]
BLOCK_ROWS: list[PartialRow] = [(f"p{number}", number) for number in range(20)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def use_twice(store: PartialAnswerCache, key: str) -> None:
    store.record_use(key, store.add_blocks(key, COLUMN_TYPES, {f"block of {key}": BLOCK_ROWS}))


def held_bytes(store: PartialAnswerCache) -> int:
    return store._new_entries.held_bytes + store._reused_entries.held_bytes


def rows_of(entry: PartialAnswerEntry) -> dict[str, list[PartialRow]]:
    return {content: decode_partial_rows(rows) for content, rows in entry.encoded_rows_by_content_id.items()}


def stored_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_questions_that_are_asked_once_are_only_counted(tmp_path: Path) -> None:
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    assert not any(store.decide_use_for_call(f"{number}", f"{number}") for number in range(100_000))
    assert held_bytes(store) == 0
    assert sum(map(len, store._call_count_generations)) <= 2 * partial_answers._MAX_COUNTED_QUESTIONS
    assert stored_files(tmp_path) == []


def test_a_question_that_is_asked_again_may_have_partial_answers(tmp_path: Path) -> None:
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    assert [store.decide_use_for_call("a", "a") for _ in range(3)] == [False, True, True]


def test_new_questions_do_not_displace_those_that_were_used_again(tmp_path: Path) -> None:
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    use_twice(store, "mine")
    for number in range(5_000):
        store.add_blocks(f"{number}", COLUMN_TYPES, {f"{number}": BLOCK_ROWS})
    assert held_bytes(store) <= STORE_LIMITS.max_memory_bytes
    partial_answer = store.find_entry("mine", {"block of mine"})
    assert partial_answer is not None
    assert rows_of(partial_answer) == {"block of mine": BLOCK_ROWS}
    assert len(stored_files(tmp_path)) == 1


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_answers, "_MAX_ENTRY_FILES", 30)
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    for number in range(60):
        use_twice(store, f"{number}")
    assert len(stored_files(tmp_path)) == 30
    monkeypatch.setattr(partial_answers, "_MAX_ENTRY_FILES", 10_000)
    for number in range(3_000):
        use_twice(store, f"{number}")
    assert sum(path.stat().st_size for path in stored_files(tmp_path)) <= STORE_LIMITS.max_disk_bytes
    assert held_bytes(store) <= STORE_LIMITS.max_memory_bytes


def test_merged_rows_are_counted_and_too_many_are_not_stored(tmp_path: Path) -> None:
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    entry = store.add_blocks("a", COLUMN_TYPES, {"a": BLOCK_ROWS})
    before = held_bytes(store)
    store.cache_merged_rows("a", entry, "parts", BLOCK_ROWS)
    assert held_bytes(store) > before
    store.cache_merged_rows("a", entry, "other parts", BLOCK_ROWS * 200)
    assert entry.last_merge_parts_and_rows == ("parts", BLOCK_ROWS)


def test_a_question_too_large_for_the_memory_is_not_tried_again_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS, clock=clock)
    entry = store.add_blocks("a", COLUMN_TYPES, {f"{block}": BLOCK_ROWS for block in range(200)})
    assert len(entry.encoded_rows_by_content_id) == 200
    assert [store.decide_use_for_call("a", "a") for _ in range(3)] == [False] * 3
    assert held_bytes(store) == 0
    clock.now += 3601
    assert [store.decide_use_for_call("a", "a") for _ in range(2)] == [False, True]


def test_a_call_without_blocks_within_its_bounds_is_not_tried_again_for_some_seconds(tmp_path: Path) -> None:
    clock = Clock()
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS, clock=clock)
    use_twice(store, "a")
    store.pause_uncovered_call("a of the last hour")
    assert not store.decide_use_for_call("a", "a of the last hour")
    assert store.decide_use_for_call("a", "a of the last week")
    clock.now += 11
    assert store.decide_use_for_call("a", "a of the last hour")


def test_rows_of_blocks_that_are_gone_are_dropped_from_memory_and_file(tmp_path: Path) -> None:
    store = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    store.record_use("a", store.add_blocks("a", COLUMN_TYPES, {"gone": BLOCK_ROWS, "kept": BLOCK_ROWS}))
    assert store.find_entry("a", {"kept", "new"}) is not None
    reopened = PartialAnswerCache(tmp_path / "partial", STORE_LIMITS)
    partial_answer = reopened.find_entry("a", {"gone", "kept", "new"})
    assert partial_answer is not None
    assert rows_of(partial_answer) == {"kept": BLOCK_ROWS}


def test_unfinished_and_old_files_are_deleted_at_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "partial"
    store = PartialAnswerCache(folder, STORE_LIMITS)
    use_twice(store, "old")
    use_twice(store, "new")
    (folder / "unfinished.tmp").write_bytes(b"x")
    long_ago = time.time() - 8 * 86_400
    os.utime(folder / "old.partial", (long_ago, long_ago))
    PartialAnswerCache(folder, STORE_LIMITS)
    assert [path.name for path in stored_files(folder)] == ["new.partial"]


@pytest.mark.parametrize(
    ("merge", "merged"),
    [
        (MergeAggregate.SUM, 9),
        (MergeAggregate.MIN, 1),
        (MergeAggregate.MAX, 6),
        (MergeAggregate.BIT_AND, 0),
        (MergeAggregate.BIT_OR, 7),
        (MergeAggregate.BIT_XOR, 5),
    ],
)
def test_rows_of_one_key_are_merged_and_null_is_left_out(merge: MergeAggregate, merged: int) -> None:
    rows: list[PartialRow] = [("a", None), ("a", 6), ("b", None), ("a", 1), ("a", 2), ("b", None), (None, 3)]
    assert merge_partial_rows(rows, (MergeAggregate.GROUP_KEY, merge)) == [("a", merged), ("b", None), (None, 3)]


def test_logical_values_are_merged() -> None:
    rows: list[PartialRow] = [(True, False), (None, True), (False, None)]
    assert merge_partial_rows(rows, (MergeAggregate.BOOL_AND, MergeAggregate.BOOL_OR)) == [(False, True)]
