"""A repeated aggregation is answered from partial answers of compacted blocks, exactly as from all events."""

import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.query import partial_answers
from cordwood.engines.duckdb.query.partial_answers import PARTIAL_ANSWERS_FOLDER, PartialAnswerLimits
from cordwood.engines.duckdb.storage import compaction, session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import OutOfMemory, QueryOutOfTime
from cordwood.model.datatype import Kind, Row
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.event import Event
from cordwood.model.redaction import RedactMode
from cordwood.observe.observation import PartialAnswersUsed
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import (
    compile_sandbox_query,
    compile_saved_query,
    create_ad_hoc_endpoint,
    parse_and_check_endpoint,
)
from cordwood.sql.plan import Plan
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, batch, stream

ROW_GROUP_SIZE = 2048
HOUR_US = 3_600 * 10**6
PARAMETERS = (
    Parameter("project"),
    Parameter("since", Kind.TIMESTAMP),
    Parameter("unit"),
)
LIMITS_FROM_FIRST_USE = PartialAnswerLimits(
    max_memory_bytes=8 * 2**20, max_disk_bytes=8 * 2**20, min_calls_before_caching=1
)
LIMITS_FROM_SECOND_USE = PartialAnswerLimits(max_memory_bytes=8 * 2**20, max_disk_bytes=8 * 2**20)

QUERIES = {
    "by hour": "select timestamp_trunc(t.timestamp, hour) as h, count(*) as c, countif(m.status >= 500) as e from `s` as t"
    " cross join unnest(t.metadata) as m where t.timestamp >= timestamp_sub(current_timestamp(), interval 50 hour)"
    " and regexp_contains(m.path, @project) group by h order by h",
    "as the shipped endpoint": "with dates as (select case when @unit = 'day' then timestamp_sub(current_timestamp(), interval 3 day)"
    " else timestamp_sub(current_timestamp(), interval 48 hour) end as start), counts as (select case when @unit = 'day'"
    " then timestamp_trunc(t.timestamp, day) else timestamp_trunc(t.timestamp, hour) end as timestamp,"
    " countif(r.path like '%/rest%') as rest, countif(r.path like '%/auth%') as auth from `s` as t"
    " cross join unnest(t.metadata) as r where t.timestamp >= (select start from dates) and regexp_contains(r.path, @project)"
    " group by timestamp) select datetime(timestamp, 'UTC') as timestamp, rest, auth from counts order by timestamp asc",
    "all aggregates": "select t.project as p, date(t.timestamp) as d, count(*) as a, count(t.event_message) as b,"
    " sum(length(t.event_message)) as c, min(t.timestamp) as d1, max(t.event_message) as e, min(date(t.timestamp)) as f,"
    " logical_and(length(t.id) > 6) as g, logical_or(t.project = 'p1') as h, bit_and(length(t.event_message)) as i,"
    " bit_or(length(t.event_message)) as j, bit_xor(length(t.event_message)) as k, max(datetime(t.timestamp)) as l from `s` as t"
    " where t.timestamp between @since and timestamp_sub(current_timestamp(), interval 2 hour) group by p, d order by p, d",
    "without groups": "select count(*) as c, sum(length(t.event_message)) as s, max(t.timestamp) as m from `s` as t"
    " where current_timestamp() > t.timestamp and (@project is null or t.project = @project)",
    "without bounds": "select t.project, count(*) as c from `s` as t group by 1 order by c desc, 1 limit 3",
    "booleans and numbers": "select starts_with(t.event_message, 'b') as b, length(t.id) as n, extract(hour from t.timestamp) as h,"
    " count(*) as c from `s` as t where t.timestamp < @since group by b, n, h order by b, n, h",
}
# This condition depends only on the event, and not on the time of the call.
QUERIES["times of the event"] = (
    "select count(*) as c from `s` as t where t.timestamp > timestamp_sub(t.ingested_at, interval 70 hour)"
)
PARAMETER_VALUES: tuple[Mapping[str, str], ...] = (
    {"project": "p1", "since": "2023-11-13T10:00:00Z", "unit": "day"},
    {"project": "p[23]", "since": "2023-11-12T02:00:00Z", "unit": "hour"},
    {"since": "2023-11-14T02:03:04.5Z"},
)

OUTCOME_COUNTS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)


def use_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks small, and turn off flushes and compaction in the background."""
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    for module in (session, compaction):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROW_GROUP_SIZE)
    monkeypatch.setattr(compaction, "ROW_GROUPS_PER_COMPACTED_RUN", 3)
    monkeypatch.setattr(compaction, "MIN_UNCOMPACTED_ROW_GROUPS", 2)


@pytest.fixture(autouse=True)
def outcomes() -> Iterator[Counter[str]]:
    """Yield the number of questions for which partial answers were used, by outcome."""
    OUTCOME_COUNTS.clear()
    yield OUTCOME_COUNTS
    OUTCOME_COUNTS.clear()


def count_outcome(observation: object) -> None:
    if isinstance(observation, PartialAnswersUsed):
        OUTCOME_COUNTS[observation.outcome] += 1


def open_engine(folder: Path, reuse: PartialAnswerLimits = LIMITS_FROM_FIRST_USE) -> DuckDBEngine:
    options = DuckDBOptions(partial_answer_limits=reuse, record_observation=count_outcome)
    engine = DuckDBEngine(folder, DuckDBTarget(), options, clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    return engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    engine = open_engine(tmp_path / "data")
    yield engine
    engine.close()


def event(number: int, time_us: int) -> Event:
    project = None if number % 11 == 0 else f"p{number * 7919 % 5}"
    kind = ("rest", "auth", "storage")[number % 3]
    metadata = json.dumps({"status": 200 + number % 400, "path": f"/{kind}/{project}/{number % 7}"})
    return Event(f"e{number}", time_us, "ab"[number % 2] * (number % 13), project, metadata)


@pytest.fixture(scope="module")
def compacted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with nine compacted blocks and some events that are not compacted."""
    folder = tmp_path_factory.mktemp("compacted") / "data"
    with pytest.MonkeyPatch.context() as patch:
        use_small_blocks(patch)
        engine = open_engine(folder, PartialAnswerLimits())
        filling = EventSource()
        filling.append_and_flush(engine, 12 * ROW_GROUP_SIZE)
        while compact_all(engine):
            pass
        filling.append(engine, 100)
        engine.close()
    return folder


def open_copy(compacted_folder: Path, folder: Path, reuse: PartialAnswerLimits = LIMITS_FROM_FIRST_USE) -> DuckDBEngine:
    """Open a copy of the folder, and append events that stay in the memtable."""
    shutil.copytree(compacted_folder, folder)
    engine = open_engine(folder, reuse)
    engine.append([batch(*(event(100_000 + number, NOW_US - number) for number in range(100)))])
    return engine


class EventSource:
    """A source of events with increasing times, some of which arrive late."""

    def __init__(self, seed: int = 0, late_share: float = 0.0) -> None:
        self.dice = random.Random(seed)
        self.late_share = late_share
        self.number = 0
        self.time_us = NOW_US - 100 * HOUR_US

    def append(self, engine: DuckDBEngine, count: int) -> None:
        events = []
        for _ in range(count):
            self.time_us += 16 * 10**6
            self.number += 1
            late_us = self.dice.randrange(40 * HOUR_US) if self.dice.random() < self.late_share else 0
            events.append(event(self.number, self.time_us - late_us))
        engine.append([batch(*events)])

    def append_and_flush(self, engine: DuckDBEngine, count: int) -> None:
        for start in range(0, count, 1000):
            self.append(engine, min(1000, count - start))
            flush_all(engine)


def flush_all(engine: DuckDBEngine) -> None:
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        while chunk := store.take_chunk(whole_groups_only=False):
            store.flush(chunk, cursor)


def compact_all(engine: DuckDBEngine) -> bool:
    return engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))


def drop_before(engine: DuckDBEngine, time_us: int) -> None:
    with engine._storage._compactor.deletion_lock, engine._session.cursor() as cursor:
        engine._storage.get_store("s").delete_before(time_us, cursor)


def compile_query(engine: DuckDBEngine, sql: str) -> Statement:
    endpoint = Endpoint("test", UUID(int=1), sql, "1", parameters=PARAMETERS)
    return compile_saved_query(parse_and_check_endpoint(endpoint), engine.compile_target, engine.shapes_by_stream())


def answer(engine: DuckDBEngine, statement: Statement, values: Mapping[str, str], now_us: int = NOW_US) -> list[Row]:
    question = bind_parameters(statement, values, now_us, engine.regex_error)
    return [row for part in engine.answer(question, LIMITS, NEVER_CANCELLED).batches for row in part]


def assert_equal_answers(engine: DuckDBEngine, sql: str, values: Mapping[str, str], now_us: int = NOW_US) -> list[Row]:
    """Check that the rows with and without partial answers are equal, and return them."""
    statement = compile_query(engine, sql)
    without_partial_plan = msgspec.structs.replace(statement, plan=Plan(statement.plan.variants))
    expected = answer(engine, without_partial_plan, values, now_us)
    assert answer(engine, statement, values, now_us) == expected
    return expected


@pytest.mark.parametrize("query", QUERIES)
def test_an_aggregation_over_one_stream_has_a_partial_plan(engine: DuckDBEngine, query: str) -> None:
    filling = EventSource()
    filling.append_and_flush(engine, 10)
    assert compile_query(engine, QUERIES[query]).plan.partial_plan is not None


@pytest.mark.parametrize("query", QUERIES)
def test_a_repeated_answer_is_put_together_from_blocks(
    compacted_folder: Path, tmp_path: Path, query: str, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data")
    for round_ in range(3):
        for values in PARAMETER_VALUES:
            assert_equal_answers(engine, QUERIES[query], values, NOW_US + round_)
    assert outcomes.keys() == {"computed", "reused"}
    engine.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select count(distinct t.project) as c from `s` as t",
        "select t.project, avg(length(t.id)) as c from `s` as t group by 1",
        "select approx_count_distinct(t.id) as c from `s` as t",
        "select any_value(t.id) as c from `s` as t",
        "select string_agg(t.id) as c from `s` as t",
        "select sum(length(t.id) / 2) as c from `s` as t",
        "select sum(m.status) as c from `s` as t cross join unnest(t.metadata) as m",
        "select max(m.status) as c from `s` as t cross join unnest(t.metadata) as m",
        "select m.status, count(*) as c from `s` as t cross join unnest(t.metadata) as m group by 1",
        "select count(*) + 1 as c from `s` as t",
        "select timestamp_diff(current_timestamp(), t.timestamp, hour) as h, count(*) as c from `s` as t group by h",
        "select count(*) as c from `s` as t where t.ingested_at > timestamp_sub(current_timestamp(), interval 1 hour)",
        "select t.project, count(*) as c from `s` as t group by 1 having count(*) > 3",
        "select count(*) as c from `s` as t join `s` as u on t.id = u.id",
        "select count(*) as c from `s` as t where t.id in (select id from `s` where project = 'p1')",
        "select count(*) as c from `s` as t where t.timestamp > (select max(timestamp) from `s`)",
        "select count(*) as c from `s` as t where t.event_message like '%abcdefgh%'",
        "select t.project, count(*) as c from `s` as t group by rollup(1)",
        "select t.project, count(*) as c, row_number() over (order by t.project) as r from `s` as t group by 1",
        "select count(*) as c from (select id from `s` order by timestamp limit 10) as t",
        "select u.id, (select count(*) from `s` as t where t.timestamp > u.timestamp) as c from `s` as u",
        "select id from `s`",
    ],
)
def test_other_queries_have_no_partial_plan(engine: DuckDBEngine, sql: str) -> None:
    filling = EventSource()
    filling.append_and_flush(engine, 10)
    assert compile_query(engine, sql).plan.partial_plan is None


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_all_events_whatever_happens_between_them(
    tmp_path: Path, seed: int, outcomes: Counter[str]
) -> None:
    dice = random.Random(seed)
    filling = EventSource(seed, late_share=0.0005)
    engine = open_engine(tmp_path / "data")
    filling.append_and_flush(engine, 9 * ROW_GROUP_SIZE)
    now_us = NOW_US
    for _ in range(40):
        action = dice.choice(
            ("append", "flush", "flush much", "compact", "compact", "retention", "restart", "ask", "ask")
        )
        if action == "append":
            filling.append(engine, dice.randrange(1, 800))
        elif action == "flush":
            filling.append_and_flush(engine, dice.randrange(1, ROW_GROUP_SIZE))
        elif action == "flush much":
            filling.append(engine, dice.randrange(ROW_GROUP_SIZE, 2 * ROW_GROUP_SIZE))
            flush_all(engine)
        elif action == "compact":
            compact_all(engine)
        elif action == "retention":
            drop_before(engine, filling.time_us - dice.randrange(20, 80) * HOUR_US)
        elif action == "restart":
            engine.close()
            engine = open_engine(tmp_path / "data", dice.choice((LIMITS_FROM_FIRST_USE, LIMITS_FROM_SECOND_USE)))
        now_us += dice.randrange(HOUR_US)
        for query in dice.sample(sorted(QUERIES), 2):
            assert_equal_answers(engine, QUERIES[query], dice.choice(PARAMETER_VALUES), now_us)
    engine.close()
    assert outcomes.keys() == {"computed", "reused"}


def test_answers_during_flushes_and_compaction_count_every_event_once(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_answers, "_UNCOVERED_CALL_PAUSE_SECONDS", 0.0)
    filling = EventSource()
    filling.append_and_flush(engine, 9 * ROW_GROUP_SIZE)
    filling.append(engine, 3 * ROW_GROUP_SIZE)
    statement = compile_query(
        engine, "select count(*) as c, max(t.timestamp) as newest, bit_xor(length(t.id)) as x from `s` as t"
    )
    expected = answer(engine, statement, {})
    is_over = threading.Event()
    results: list[list[Row]] = []

    def ask_repeatedly() -> None:
        while not is_over.is_set():
            results.append(answer(engine, statement, {}))

    asking = [threading.Thread(target=ask_repeatedly) for _ in range(2)]
    for thread in asking:
        thread.start()
    flush_all(engine)
    while compact_all(engine):
        pass
    is_over.set()
    for thread in asking:
        thread.join()
    assert results
    assert all(rows == expected for rows in results)
    assert OUTCOME_COUNTS["computed"] > 0


def test_an_answer_from_before_a_deletion_is_not_used_after_it(
    compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data")
    statement = compile_query(engine, COUNTS_SQL)
    answer(engine, statement, COUNTS_VALUES)
    before = answer(engine, statement, COUNTS_VALUES)
    drop_before(engine, NOW_US - 60 * HOUR_US)
    assert assert_equal_answers(engine, COUNTS_SQL, COUNTS_VALUES) != before
    assert outcomes["failed"] == 0
    engine.close()


def test_a_restored_folder_has_the_answers_of_its_own_events(compacted_folder: Path, tmp_path: Path) -> None:
    """Restore the folder twice, while the files with partial answers of the lost blocks still exist.

    After each restore, new blocks get the numbers of the lost blocks.
    """
    engine = open_copy(compacted_folder, tmp_path / "data")
    engine.close()
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    for first_number in (200_000, 300_000):
        engine = open_engine(tmp_path / "data")
        for start in range(0, 6 * ROW_GROUP_SIZE, 1000):
            engine.append([batch(*(event(first_number + start + n, NOW_US - 10**9 * n) for n in range(1000)))])
            flush_all(engine)
        while compact_all(engine):
            pass
        for _ in range(3):
            assert_equal_answers(engine, COUNTS_SQL, COUNTS_VALUES)
        engine.close()
        answers_folder = tmp_path / "data" / PARTIAL_ANSWERS_FOLDER
        shutil.copytree(answers_folder, tmp_path / "kept", dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "backup", tmp_path / "data")
        shutil.copytree(tmp_path / "kept", answers_folder, dirs_exist_ok=True)


COUNTS_SQL, COUNTS_VALUES = QUERIES["without bounds"], PARAMETER_VALUES[0]


def test_a_question_that_is_asked_once_takes_no_space(
    compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_SECOND_USE)
    for number in range(20):
        answer(engine, compile_query(engine, QUERIES["without groups"]), {"project": f"p{number}"})
    assert not outcomes
    answer(engine, compile_query(engine, QUERIES["without groups"]), {"project": "p3"})
    assert outcomes == {"computed": 1}
    assert not list((tmp_path / "data").rglob("*.partial"))
    engine.close()


def test_partial_answers_that_were_used_again_survive_a_restart(
    compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_SECOND_USE)
    for _ in range(3):
        expected = answer(engine, compile_query(engine, COUNTS_SQL), COUNTS_VALUES)
    assert outcomes == {"computed": 1, "reused": 1}
    engine.close()
    reopened = open_engine(tmp_path / "data", LIMITS_FROM_SECOND_USE)
    assert answer(reopened, compile_query(reopened, COUNTS_SQL), COUNTS_VALUES) == expected
    assert outcomes == {"computed": 1, "reused": 2}
    reopened.close()


@pytest.mark.parametrize("damage", [b"", b"cordwood partial answers 1\n", b"x" * 200])
def test_a_damaged_file_is_computed_again(
    compacted_folder: Path, tmp_path: Path, damage: bytes, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_SECOND_USE)
    for _ in range(3):
        expected = answer(engine, compile_query(engine, COUNTS_SQL), COUNTS_VALUES)
    engine.close()
    (file,) = (tmp_path / "data" / PARTIAL_ANSWERS_FOLDER).iterdir()
    file.write_bytes(damage or file.read_bytes()[:-1])
    reopened = open_engine(tmp_path / "data", LIMITS_FROM_SECOND_USE)
    assert answer(reopened, compile_query(reopened, COUNTS_SQL), COUNTS_VALUES) == expected
    assert outcomes == {"computed": 2, "reused": 1}
    assert not list((tmp_path / "data" / PARTIAL_ANSWERS_FOLDER).iterdir())
    reopened.close()


def test_a_file_of_another_question_is_not_read(compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_FIRST_USE)
    statement = compile_query(engine, QUERIES["without groups"])
    for _ in range(2):
        expected = [answer(engine, statement, {"project": project}) for project in ("p1", "p2")]
    engine.close()
    first, second = (tmp_path / "data" / PARTIAL_ANSWERS_FOLDER).iterdir()
    swapped = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(swapped)
    reopened = open_engine(tmp_path / "data", LIMITS_FROM_FIRST_USE)
    assert [answer(reopened, statement, {"project": project}) for project in ("p1", "p2")] == expected
    assert outcomes == {"computed": 4, "reused": 2}
    reopened.close()


def test_a_full_disk_costs_only_the_files(compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_FIRST_USE)
    (tmp_path / "data" / PARTIAL_ANSWERS_FOLDER).write_text("no folder can be made here")
    for _ in range(3):
        assert_equal_answers(engine, COUNTS_SQL, COUNTS_VALUES)
    assert outcomes == {"computed": 1, "reused": 2}
    engine.close()


def test_without_space_each_answer_is_computed_from_all_events(
    compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", PartialAnswerLimits())
    for _ in range(3):
        assert_equal_answers(engine, COUNTS_SQL, COUNTS_VALUES)
    assert not outcomes
    engine.close()


def test_partial_answers_with_too_many_groups_are_not_stored(
    compacted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    monkeypatch.setattr(partial_answers, "MAX_COMPUTED_PARTIAL_ROWS", 20)
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_FIRST_USE)
    for _ in range(3):
        assert_equal_answers(engine, QUERIES["all aggregates"], COUNTS_VALUES)
    assert not outcomes
    engine.close()


def test_a_sum_that_fails_in_parts_is_computed_as_a_whole(
    compacted_folder: Path, tmp_path: Path, outcomes: Counter[str]
) -> None:
    engine = open_copy(compacted_folder, tmp_path / "data", LIMITS_FROM_FIRST_USE)
    largest = 2**62
    sql = (
        "select sum(if(mod(length(t.id), 2) = 0, 1, -1) * 0 + case when t.id = 'e1' or t.id = 'e2' or t.id = 'e3'"
        f" then {largest} when t.id in ('e20001', 'e20002', 'e20003') then -{largest} else 1 end) as s from `s` as t"
    )
    assert compile_query(engine, sql).plan.partial_plan is not None
    for _ in range(2):
        assert_equal_answers(engine, sql, COUNTS_VALUES)
    assert outcomes == {"failed": 1}
    engine.close()


def test_all_attempts_of_one_answer_share_its_time_limit(
    compacted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = AnswerLimits(10, 0.2)

    def run_out_of_memory_slowly(*_: object) -> None:
        time.sleep(2 * limits.timeout_seconds)
        raise OutOfMemory("There is too little memory.")

    engine = open_copy(compacted_folder, tmp_path / "data")
    question = bind_parameters(
        compile_query(engine, QUERIES["by hour"]), PARAMETER_VALUES[0], NOW_US, engine.regex_error
    )
    monkeypatch.setattr(partial_answers.PartialAnswerPlanner, "prepare_variant", run_out_of_memory_slowly)
    with pytest.raises(QueryOutOfTime, match=r"took longer than its 0\.2 s"):
        engine.answer(question, limits, NEVER_CANCELLED)
    engine.close()


def test_callers_own_queries_have_no_partial_plan(engine: DuckDBEngine) -> None:
    filling = EventSource()
    filling.append_and_flush(engine, 10)
    sql = "with logs as (select t.id, t.project from `s` as t) select project, count(*) as c from logs group by 1"
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", accepts_sandbox_queries=True))
    own = compile_sandbox_query(
        program, "select count(*) as c from logs", engine.compile_target, engine.shapes_by_stream()
    )
    assert own.plan.partial_plan is None
    ad_hoc = parse_and_check_endpoint(create_ad_hoc_endpoint(COUNTS_SQL, ["s"]))
    assert compile_saved_query(ad_hoc, engine.compile_target, engine.shapes_by_stream()).plan.partial_plan is None


def test_redacted_answers_have_no_partial_plan(engine: DuckDBEngine) -> None:
    filling = EventSource()
    filling.append_and_flush(engine, 10)
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), COUNTS_SQL, "1"))
    redacted = compile_saved_query(
        program, engine.compile_target, engine.shapes_by_stream(), RedactionPolicy(RedactMode.REPLACE)
    )
    assert redacted.plan.partial_plan is None
