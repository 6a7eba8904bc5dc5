"""A text search reads only the blocks that the n-gram index cannot rule out, and finds what a full scan finds."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.index_pruning import _required_texts_of_regex
from cordwood.engines.duckdb.storage.blocks import NgramIndex, extract_ngrams
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.definitions import Endpoint, Parameter, TextParameterKind
from cordwood.model.event import Event
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.stages import Statement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, batch, rows, stream
from tests.plans import flushed_sql

BLOCK_COUNT = 12
EVENTS_PER_BLOCK = 100


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    """Yield an engine with twelve blocks and ten pending events.

    Each block has a hundred events, and each event has a unique word.
    """
    folder: Path = tmp_path_factory.mktemp("pieces")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Flusher, "flush_next", lambda _: 60.0)
        patched.setattr(Compactor, "run_due_work", lambda _: 60.0)
        engine = DuckDBEngine(folder / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
        engine.create_stream_tables([stream("s")])
        store = engine._storage.get_store("s")
        with engine._session.cursor() as cursor:
            for block in range(BLOCK_COUNT):
                engine.append(
                    [
                        batch(
                            *(
                                event(number)
                                for number in range(block * EVENTS_PER_BLOCK, (block + 1) * EVENTS_PER_BLOCK)
                            )
                        )
                    ]
                )
                while chunk := store.take_chunk(whole_groups_only=False):
                    store.flush(chunk, cursor)
        while engine._storage._compactor.index_newest_block(store):
            """Nothing but this does so here."""
        engine.append(
            [
                batch(
                    *(
                        event(number)
                        for number in range(BLOCK_COUNT * EVENTS_PER_BLOCK, BLOCK_COUNT * EVENTS_PER_BLOCK + 10)
                    )
                )
            ]
        )
        yield engine
        engine.close()


def word_of_event(number: int) -> str:
    return f"{random.Random(number).getrandbits(64):016x}"


def event(number: int) -> Event:
    message = (
        None
        if number % 50 == 7
        else f"GET | 200 | {word_of_event(number)} | https://{word_of_event(number)[:9]}ünïcode.example.com/a"
    )
    return Event(f"e{number:04}", NOW_US + number, message, f"p{number % 3}", f'{{"n":{number}}}')


def compile_query(engine: DuckDBEngine, sql: str) -> Statement:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=5000))
    return compile_saved_query(program, engine.compile_target, engine.shapes_by_stream())


def candidate_blocks(engine: DuckDBEngine, *texts: str) -> list[int] | None:
    with engine._session.cursor() as cursor:
        return NgramIndex().find_candidate_blocks(cursor, "s", extract_ngrams(texts))


INDEXED_SEARCHES = [
    (f"select id from `s` where event_message like '%{word_of_event(310)}%'", ["e0310"]),
    (f"select id from `s` where event_message like '%{word_of_event(310)[3:10]}%'", ["e0310"]),
    (f"select id from `s` where event_message like 'GET%{word_of_event(1203)}%'", ["e1203"]),
    (f"select id from `s` where regexp_contains(event_message, r'\\| {word_of_event(310)} \\|.*x?ample')", ["e0310"]),
    (f"select id from `s` where strpos(event_message, '{word_of_event(310)}') > 0 and project = 'p1'", ["e0310"]),
    (f"with e as (select id, event_message as m, timestamp from `s`), f as (select id, m from e) select id from f where m like '%{word_of_event(310)}%'", ["e0310"]),
    (f"select count(*) as n from `s` where event_message like '%{word_of_event(310)}%'", [1]),
    (f"select id, metadata from `s` where event_message like '%{word_of_event(5)}%' order by timestamp desc limit 5", ["e0005"]),
    ("select count(*) as n from `s` where event_message like '%deadbeefdeadbeef%'", [0]),
]  # fmt: skip

OTHER_SEARCHES = [
    f"select id from `s` where event_message like '%{word_of_event(310)}%' or id = 'e0004'",
    f"select id from `s` where event_message not like '%{word_of_event(310)}%'",
    f"select id from `s` where regexp_contains(event_message, '{word_of_event(310)}|{word_of_event(311)}')",
    f"select id from `s` where regexp_contains(event_message, '(?i){word_of_event(310).upper()}')",
    f"select id from `s` where regexp_contains(event_message, '({word_of_event(310)})?GET')",
    f"select id from (select id, event_message from `s` order by id limit 20) where event_message like '%{word_of_event(310)}%'",
    f"with e as (select id, event_message as m from `s`) select a.id from e as a join e as b on a.id = b.id where a.m like '%{word_of_event(310)}%'",
    f"select u.id from unnest(['e0004']) as t left join `s` as u on u.id = t and u.event_message like '%{word_of_event(310)}%'",
    "select id from `s` where event_message like '%short%'",
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), INDEXED_SEARCHES)
def test_an_indexed_search_finds_its_rows(engine: DuckDBEngine, sql: str, expected: list[object]) -> None:
    assert compile_query(engine, sql).plan.variants[0].block_filters()
    assert [row[0] for row in rows(engine, sql)] == expected


@pytest.mark.parametrize("sql", OTHER_SEARCHES)
def test_texts_that_not_every_match_contains_do_not_use_the_index(engine: DuckDBEngine, sql: str) -> None:
    assert not compile_query(engine, sql).plan.variants[0].block_filters()
    rows(engine, sql)


SEARCHES_WITH_PARAMETERS = [
    ("strpos(event_message, @text) > 0", {"text": word_of_event(310)}, ["e0310"]),
    ("strpos(event_message, @text) > 0 and timestamp > timestamp_micros(0)", {"text": word_of_event(5)}, ["e0005"]),
    ("regexp_contains(event_message, @pattern)", {"pattern": rf"\| {word_of_event(1203)} \|"}, ["e1203"]),
    ("strpos(event_message, @text) > 0", {"text": "deadbeefdeadbeef"}, []),
    ("strpos(event_message, @text) > 0 and id < 'e0002'", {"text": "GET"}, ["e0000", "e0001"]),
    ("regexp_contains(event_message, @pattern) and id < 'e0002'", {"pattern": "GET|HEAD"}, ["e0000", "e0001"]),
    ("strpos(event_message, @text) > 0", {}, []),
]


@pytest.mark.parametrize(("condition", "parameter_values", "expected"), SEARCHES_WITH_PARAMETERS)
def test_the_value_of_a_parameter_uses_the_index_like_a_literal(
    engine: DuckDBEngine,
    condition: str,
    parameter_values: dict[str, str],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[Sequence[str]] = []

    find = NgramIndex.find_candidate_blocks

    def record_searches(
        index: NgramIndex, cursor: duckdb.DuckDBPyConnection, stream: str, ngrams: Sequence[str]
    ) -> list[int] | None:
        searched.append(ngrams)
        return find(index, cursor, stream, ngrams)

    monkeypatch.setattr(NgramIndex, "find_candidate_blocks", record_searches)
    names = re.findall(r"@(\w+)", condition)
    parameters = tuple(
        Parameter(name, kind=TextParameterKind.REGEX if name == "pattern" else TextParameterKind.PLAIN)
        for name in names
    )
    sql = f"select id from `s` where {condition} order by id"
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=5000, parameters=parameters))
    statement = compile_saved_query(program, engine.compile_target, engine.shapes_by_stream())

    answer = engine.answer(
        bind_parameters(statement, parameter_values, NOW_US, engine.regex_error), LIMITS, NEVER_CANCELLED
    )

    assert [row[0] for part in answer.batches for row in part] == expected
    assert bool(searched) is any(extract_ngrams([value]) and "|H" not in value for value in parameter_values.values())


def test_a_regular_expression_is_pushed_down_to_the_table(engine: DuckDBEngine) -> None:
    """Push down the condition, which DuckDB itself does not push through a sub-query, because it might fail."""
    through = "with e as (select id, event_message as m from `s`)"
    statement = compile_query(engine, through + """ select id from e where regexp_contains(m, r"G.T's? \\{2@x")""")
    for sql, tables in ((flushed_sql(statement), 1), (statement.sql, 2)):
        assert str(sql).count("""WHERE regexp_matches("event_message", 'G.T''s? \\{2@x')""") == tables
        assert str(sql).count("regexp_matches") == tables
    assert rows(engine, "select count(*) as n from `s` where regexp_contains(event_message, 'G[A-F]T')") == [(1185,)]
    conditions = (
        "select id from `s` where regexp_contains(event_message, 'G[E]T') and event_message like '%200%' order by id"
    )
    assert len(rows(engine, conditions)) == 1185


def test_a_rare_word_has_few_candidate_blocks(engine: DuckDBEngine) -> None:
    candidates = candidate_blocks(engine, word_of_event(310))
    assert candidates is not None
    assert len(candidates) <= 3


def test_every_word_is_found_in_its_block(engine: DuckDBEngine) -> None:
    indexed_blocks = [number for number in range(BLOCK_COUNT * EVENTS_PER_BLOCK) if number % 50 != 7]
    missing = [
        number
        for number in random.Random(1).sample(indexed_blocks, 60)
        if rows(engine, f"select count(*) as n from `s` where event_message like '%{word_of_event(number)}%'") != [(1,)]
    ]
    assert missing == []


def test_a_common_word_does_not_restrict_the_scan(engine: DuckDBEngine) -> None:
    assert candidate_blocks(engine, "example") is None
    assert rows(engine, "select count(*) as n from `s` where event_message like '%example%'") == [(1185,)]


def test_cached_filters_find_the_same_blocks_as_those_in_the_file(engine: DuckDBEngine) -> None:
    cached, uncached = NgramIndex(), NgramIndex(max_cached_bytes=0)
    found_some = 0
    with engine._session.cursor() as cursor:
        for number in range(0, BLOCK_COUNT * EVENTS_PER_BLOCK, 7):
            for text in (word_of_event(number), word_of_event(number)[:7], f"{number:06}"):
                ngrams = extract_ngrams([text])
                candidates = uncached.find_candidate_blocks(cursor, "s", ngrams)
                assert cached.find_candidate_blocks(cursor, "s", ngrams) == candidates
                found_some += candidates is not None and len(candidates) > 1
    assert found_some


def test_a_cached_filter_is_not_used_for_a_block_of_another_engine_version(engine: DuckDBEngine) -> None:
    index, ngrams = NgramIndex(), extract_ngrams(["deadbeefdeadbeef"])
    with engine._session.cursor() as cursor:
        before = index.find_candidate_blocks(cursor, "s", ngrams)
        cursor.execute("BEGIN")
        cursor.execute("UPDATE store.cordwood.pieces SET engine = 'v1' WHERE block = 3")
        after = index.find_candidate_blocks(cursor, "s", ngrams)
        cursor.execute("ROLLBACK")
    assert before is not None
    assert after is not None
    assert set(after) - set(before) == {3}


def test_blocks_indexed_by_another_engine_version_are_candidates(engine: DuckDBEngine) -> None:
    with engine._session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE store.cordwood.pieces SET engine = 'v1' WHERE block = 3")
        candidates = NgramIndex().find_candidate_blocks(cursor, "s", extract_ngrams(["deadbeefdeadbeef"]))
        cursor.execute("ROLLBACK")
    assert candidates is not None
    assert 3 in candidates


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("abcdef", ["abcdef"]),
        ("^abc.*def$", ["abc", "def"]),
        (r"abc\.def\dghi", ["abc", "def", "ghi"]),
        ("abcd*ef", ["abc", "ef"]),
        ("abcd?", ["abc"]),
        ("abcd{0,3}ef", ["abc", "ef"]),
        ("abcd+ef", ["abcd", "ef"]),
        ("a(bc(de))?f", ["a", "f"]),
        ("a[bc|d]e", ["a", "e"]),
        ("a[]b]c", ["a", "c"]),
        ("a[^]b]c", ["a", "c"]),
        (r"a[\]b]c", ["a", "c"]),
        ("a[[:alpha:]]c", []),
        ("abc|def", []),
        ("(?i)abc", []),
        (r"abc\x41", []),
        (r"\Qabc\E", []),
        (r"\pNabc", []),
    ],
)
def test_literals_that_every_match_of_a_pattern_contains(pattern: str, texts: list[str]) -> None:
    assert _required_texts_of_regex(pattern) == texts


@pytest.mark.parametrize(
    ("texts", "pieces"),
    [
        (["abcdef"], ("abcdef",)),
        (["abcdefg h"], ("abcdef", "bcdefg")),
        (["abcde-fghij"], ()),
        (["überlegen"], ("berleg", "erlege", "rlegen")),
        (["abcdef", "abcdef"], ("abcdef",)),
    ],
)
def test_ngrams_are_of_six_letters_or_digits(texts: list[str], pieces: tuple[str, ...]) -> None:
    assert extract_ngrams(texts) == pieces


def test_a_new_block_is_a_candidate_until_it_is_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([batch(*map(event, range(EVENTS_PER_BLOCK)))])
    store = engine._storage.get_store("s")
    chunk = store.take_chunk(whole_groups_only=False)
    assert chunk is not None
    with engine._session.cursor() as cursor:
        store.flush(chunk, cursor)
    assert rows(engine, f"select id from `s` where event_message like '%{word_of_event(31)}%'") == [("e0031",)]
    assert candidate_blocks(engine, "deadbeefdeadbeef") is None
    assert engine._storage._compactor.index_newest_block(store)
    assert candidate_blocks(engine, "deadbeefdeadbeef") == [0]
    assert not engine._storage._compactor.index_newest_block(store)
    engine.close()


def test_no_text_is_required_by_a_very_long_regular_expression() -> None:
    assert _required_texts_of_regex("(abc)" + "x" * 900) == ["x" * 900]
    assert _required_texts_of_regex("(" * 20_000 + "x" + ")" * 20_000) == []
