"""Time each question on a real service, on DuckDB over the same file and over a plain table, and on other servers."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.events import event_bodies, generate, line_bodies
from bench.peers.duckdb_handwritten import (
    HANDWRITTEN,
    PLAIN_TABLE,
    HandwrittenSql,
    batches_seconds,
    bulk_insert_seconds,
    open_handwritten,
)
from bench.peers.postgres import Postgres, postgres
from bench.peers.victorialogs import VictoriaLogs, victorialogs
from bench.questions import QUESTIONS, Question, Row
from bench.report import LOAD_GOAL, LOAD_RATE, OURS, Report
from bench.service import Service, service
from bench.timing import Times, elapsed_ms, measure_round_robin

_BATCH_SIZE = 5000
_CONNECTIONS = 4
# Number of events to insert in batches. DuckDB takes the same time for each batch, so a part of the events suffices.
_MAX_EVENTS_IN_BATCHES = 200_000
# Number of passes. Each measures all questions once, because the speed of the machine changes for minutes at a time.
MEASUREMENT_PASSES = 5
_ROUNDS = 9
_START_COUNT = 5
_IDLE_SECONDS = 1.0
# At this time after a load, its last events have been flushed, and compaction has not begun yet.
_AFTER_LOAD_SECONDS = 5.0
# PostgreSQL has fewer rounds, because it takes about a second for each question.
_POSTGRES_ROUNDS = 3


def measure(
    scratch: Path,
    count: int,
    *,
    with_postgres: bool,
    engine: str | None = None,
    victorialogs_binary: Path | None = None,
) -> Report:
    """Load `count` events and time all questions. The generated events stay in `scratch` for the next run."""
    report = Report(count)
    events, lines = event_files(scratch, count)
    folder = _empty_folder(scratch / "service")
    options = ["--engine", engine] if engine else []
    _load_service(report, folder, lines, options)
    plain_file = _load_plain_table(report, scratch, lines)
    with ExitStack() as peers:
        handwritten = peers.enter_context(_open_copy(folder / "data", plain_file))
        plain = peers.enter_context(open_handwritten(plain_file))
        logs = None
        if victorialogs_binary is not None:
            logs = peers.enter_context(victorialogs(victorialogs_binary, _empty_folder(scratch / "victorialogs")))
            _load_victorialogs(report, logs, lines)
        answers = _measure_service(report, folder, options, handwritten, plain, logs)
        if logs is not None:
            report.figures["resident after the questions, MB"][VictoriaLogs.name] = logs.resident_mb
    plain_file.unlink()
    if with_postgres:
        # PostgreSQL is measured last, because it writes for minutes after its load, which would slow the other systems.
        _measure_postgres(report, events, answers)
    return report


def _measure_service(
    report: Report,
    folder: Path,
    options: list[str],
    handwritten: HandwrittenSql,
    plain: HandwrittenSql,
    logs: VictoriaLogs | None,
) -> dict[str, list[Row]]:
    """Time the service and its peers. Return the answers by question, after checking that all systems give the same
    answer.
    """
    answers: dict[str, list[Row]] = {}
    first = handwritten.rows(QUESTIONS[0].duckdb)
    report.starts = measure_round_robin(
        _START_COUNT,
        {
            OURS: lambda: _measure_start_ms(folder, options, first),
            HANDWRITTEN: lambda: elapsed_ms(lambda: handwritten.start(QUESTIONS[0].duckdb)),
        },
    )
    seconds = {name: times.median / 1000 for name, times in report.starts.items()}
    report.figures["start to first right answer, s"] = {**seconds, "aim": 1.0}
    with service(folder, *options) as running:
        for question in QUESTIONS * MEASUREMENT_PASSES:
            answers[question.name] = _compared_columns(question, running)
            # The first query may have started background work, which continues after its answer.
            running.wait_until_idle(_IDLE_SECONDS)
            times = _time_question(
                question, answers[question.name], running, {HANDWRITTEN: handwritten, PLAIN_TABLE: plain}, logs
            )
            report.add(question.name, times)
            report.add_without_peers(
                question.name, measure_round_robin(_ROUNDS, {OURS: partial(_time_request_ms, question, running)})[OURS]
            )
            print(question.name, {name: str(each) for name, each in times.items()}, flush=True)
        report.figures["resident after the questions, MB"] = {OURS: running.resident_mb, "aim": 350}
    return answers


def _measure_start_ms(folder: Path, options: list[str], expected: list[Row]) -> float:
    """Return the milliseconds from the start of the service to its first correct answer."""
    started_at = time.perf_counter()
    with service(folder, *options) as running:
        assert _compared_columns(QUESTIONS[0], running) == expected
        return (time.perf_counter() - started_at) * 1000


@contextmanager
def _open_copy(data: Path, plain_file: Path) -> Iterator[HandwrittenSql]:
    """Open a copy of the service's file. If the service does not use DuckDB, open the plain table's file instead."""
    files = list(data.glob("*.duckdb"))
    if not files:
        with open_handwritten(plain_file) as peer:
            yield peer
        return
    copy = plain_file.with_name("copy.duckdb")
    shutil.copyfile(files[0], copy)
    with open_handwritten(copy) as peer:
        yield peer
    copy.unlink()


def event_files(scratch: Path, count: int) -> tuple[Path, Path]:
    """Return two files with the generated events, as Parquet and as NDJSON. Missing files are generated."""
    files = scratch / f"events-{count}.parquet", scratch / f"events-{count}.ndjson"
    for file in files:
        if not file.exists():
            generate(count, file)
    return files


def _load_service(report: Report, folder: Path, lines: Path, options: list[str]) -> None:
    """Load the events into the service, and record its rate, memory, processor time and disk space."""
    with service(folder, *options) as running:
        running.wait_until_idle()
        report.figures["resident idle, empty store, MB"] = {OURS: running.resident_mb, "aim": 110}
        with running.memory_probe() as probe:
            seconds = running.load(event_bodies(lines, _BATCH_SIZE), _CONNECTIONS)
            report.figures[LOAD_RATE] = {OURS: report.count / seconds, "aim": LOAD_GOAL}
            # The last events are flushed after the load, which may take more memory than the load itself.
            time.sleep(_AFTER_LOAD_SECONDS)
            report.figures["resident after the load, MB"] = {OURS: probe.measure() / 1e6, "aim": 350}
        report.figures["resident at most, during the load, MB"] = {OURS: probe.peak_bytes / 1e6}
        with running.memory_probe() as probe:
            running.wait_for_compaction()
        report.figures["resident at most, during compaction, MB"] = {OURS: probe.peak_bytes / 1e6}
        report.figures["resident after compaction, MB"] = {OURS: running.resident_mb, "aim": 350}
        report.figures["processor time of the load, µs an event"] = {
            OURS: running.processor_seconds / report.count * 1e6
        }
    report.figures["disk after the load, MB"] = {OURS: running.disk_mb, "aim": 300}


def _load_victorialogs(report: Report, logs: VictoriaLogs, lines: Path) -> None:
    """Load the events into VictoriaLogs, and record its rate, memory and disk space."""
    seconds = logs.load(line_bodies(lines, _BATCH_SIZE), _CONNECTIONS)
    report.figures[LOAD_RATE][VictoriaLogs.name] = report.count / seconds
    time.sleep(_AFTER_LOAD_SECONDS)
    report.figures["resident after the load, MB"][VictoriaLogs.name] = logs.resident_mb
    report.figures["disk after the load, MB"][VictoriaLogs.name] = logs.disk_mb


def _empty_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _load_plain_table(report: Report, scratch: Path, lines: Path) -> Path:
    """Load the events into plain DuckDB tables, in one statement and in batches. Return the file of the first table."""
    file = scratch / "bulk.duckdb"
    file.unlink(missing_ok=True)
    report.figures[LOAD_RATE][HANDWRITTEN] = report.count / bulk_insert_seconds(lines, file)
    count = min(report.count, _MAX_EVENTS_IN_BATCHES)
    report.figures[LOAD_RATE][PLAIN_TABLE] = count / batches_seconds(event_bodies(lines, _BATCH_SIZE, count), scratch)
    report.figures["disk after the load, MB"][HANDWRITTEN] = file.stat().st_size / 1e6
    return file


def _measure_postgres(report: Report, events: Path, answers: dict[str, list[Row]]) -> None:
    with postgres() as peer:
        report.figures[LOAD_RATE][Postgres.name] = report.count / peer.load(events)
        report.figures["disk after the load, MB"][Postgres.name] = peer.disk_mb
        for question in QUESTIONS:
            _assert_same_answer(question, answers[question.name], peer.rows(question.postgres), Postgres.name)
            ask = partial(peer.milliseconds, question.postgres)
            report.add(question.name, measure_round_robin(_POSTGRES_ROUNDS, {Postgres.name: ask}))


def _compared_columns(question: Question, running: Service) -> list[Row]:
    rows = running.rows(question.endpoint, question.parameters)
    return [tuple(row[column] for column in question.columns or row) for row in rows]


def _assert_same_answer(question: Question, answer: list[Row], rows: list[Row], peer: str) -> None:
    """Check that a peer's answer equals the service's answer in the columns of the question."""
    compared = [row[: len(question.columns) or None] for row in rows]
    assert answer == compared, f"{question.name}: {peer} gives another answer"


def _in_victorialogs_format(question: Question, answer: list[Row]) -> list[Row]:
    """Return the answer in the form of VictoriaLogs: times in microseconds, and all other values as texts."""
    is_time = [field == "_time" for field in question.logs.fields]
    return [tuple(value if time else str(value) for time, value in zip(is_time, row, strict=True)) for row in answer]


def _time_request_ms(question: Question, running: Service) -> float:
    return elapsed_ms(lambda: running.query(question.endpoint, question.parameters))


def _time_question(
    question: Question,
    answer: list[Row],
    running: Service,
    peers: Mapping[str, HandwrittenSql],
    logs: VictoriaLogs | None,
) -> dict[str, Times]:
    """Check the answers of the peers, then time the service and the peers round-robin."""
    assert answer, f"{question.name}: no rows"
    actions: dict[str, Callable[[], float]] = {OURS: partial(_time_request_ms, question, running)}
    for name, peer in peers.items():
        _assert_same_answer(question, answer, peer.rows(question.duckdb), name)
        actions[name] = partial(peer.milliseconds, question.duckdb)
    if logs is not None:
        _assert_same_answer(
            question, _in_victorialogs_format(question, answer), logs.rows(question.logs), VictoriaLogs.name
        )
        actions[VictoriaLogs.name] = partial(logs.milliseconds, question.logs)
    return measure_round_robin(_ROUNDS, actions)
