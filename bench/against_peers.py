"""Every question through the real service, beside the bare engine over the same file and the incumbent's storage."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.events import bodies, make
from bench.peers.duckdb_by_hand import BY_HAND, PLAIN, ByHand, batches_seconds, bulk_insert_seconds, by_hand
from bench.peers.postgres import Postgres, postgres
from bench.questions import QUESTIONS, Question, Row
from bench.report import LOAD, LOAD_AIM, OURS, Report
from bench.service import Service, service
from bench.timing import Times, elapsed_ms, in_turns

_BATCH = 5000
_CONNECTIONS = 4
# By hand, each batch takes as long as the one before.
_IN_BATCHES = 200_000
# A machine is now fast and now slow, for minutes: each question is asked again when all were.
VISITS = 5
_ROUNDS = 9
_STARTS = 5
_SETTLED_SECONDS = 1.0
# What is left of a load is sealed by then, and no slice is being settled yet.
_SOON_AFTER_SECONDS = 5.0
# The incumbent's way takes a second a question.
_ROUNDS_OF_POSTGRES = 3


def measure(scratch: Path, count: int, *, with_postgres: bool, engine: str | None = None) -> Report:
    """`scratch` keeps the made-up events for the next time."""
    report = Report(count)
    events, lines = made(scratch, count)
    folder = scratch / "service"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    more = ["--engine", engine] if engine else []
    _load(report, folder, lines, more)
    bulk = _bulk(report, scratch, lines)
    with _by_hand(folder / "data", bulk) as here, by_hand(bulk) as plain:
        answers = _ours(report, folder, more, here, plain)
    bulk.unlink()
    if with_postgres:
        # Alone: it writes down what it was given for minutes, and the others would wait for it.
        _ask_postgres(report, events, answers)
    return report


def _ours(report: Report, folder: Path, more: list[str], here: ByHand, plain: ByHand) -> dict[str, list[Row]]:
    """The answers, by question; they are those of SQL by hand."""
    answers: dict[str, list[Row]] = {}
    first = here.rows(QUESTIONS[0].duckdb)
    report.starts = in_turns(
        _STARTS,
        {
            OURS: lambda: _start_ms(folder, more, first),
            BY_HAND: lambda: elapsed_ms(lambda: here.start(QUESTIONS[0].duckdb)),
        },
    )
    seconds = {name: times.median / 1000 for name, times in report.starts.items()}
    report.figures["start to first right answer, s"] = {**seconds, "aim": 1.0}
    with service(folder, *more) as ours:
        for question in QUESTIONS * VISITS:
            answers[question.name] = _compared(question, ours)
            # What a first question begins is not done when it is answered.
            ours.settle(_SETTLED_SECONDS)
            times = _asked(question, answers[question.name], ours, {BY_HAND: here, PLAIN: plain})
            report.add(question.name, times)
            report.add_alone(question.name, in_turns(_ROUNDS, {OURS: partial(_ask_ms, question, ours)})[OURS])
            print(question.name, {name: str(each) for name, each in times.items()}, flush=True)
        report.figures["resident after the questions, MB"] = {OURS: ours.resident_mb, "aim": 350}
    return answers


def _start_ms(folder: Path, more: list[str], first: list[Row]) -> float:
    """Until the first question is answered, and right."""
    began = time.perf_counter()
    with service(folder, *more) as ours:
        assert _compared(QUESTIONS[0], ours) == first
        return (time.perf_counter() - began) * 1000


@contextmanager
def _by_hand(data: Path, bulk: Path) -> Iterator[ByHand]:
    """Over a copy of the very file, or over a plain one where the service's engine is another."""
    files = list(data.glob("*.duckdb"))
    if not files:
        with by_hand(bulk) as here:
            yield here
        return
    copy = bulk.with_name("copy.duckdb")
    shutil.copyfile(files[0], copy)
    with by_hand(copy) as here:
        yield here
    copy.unlink()


def made(scratch: Path, count: int) -> tuple[Path, Path]:
    """The events as Parquet and as lines."""
    files = scratch / f"events-{count}.parquet", scratch / f"events-{count}.ndjson"
    for file in files:
        if not file.exists():
            make(count, file)
    return files


def _load(report: Report, folder: Path, lines: Path, more: list[str]) -> None:
    with service(folder, *more) as ours:
        ours.settle()
        report.figures["resident idle, empty store, MB"] = {OURS: ours.resident_mb, "aim": 110}
        seconds = ours.load(bodies(lines, _BATCH), _CONNECTIONS)
        report.figures[LOAD] = {OURS: report.count / seconds, "aim": LOAD_AIM}
        report.figures["resident at most, during the load, MB"] = {OURS: ours.most_resident_mb}
        time.sleep(_SOON_AFTER_SECONDS)
        report.figures["resident after the load, MB"] = {OURS: ours.resident_mb, "aim": 350}
        ours.forget_most()
        ours.settle_slices()
        report.figures["resident at most, while slices are settled, MB"] = {OURS: ours.most_resident_mb}
        report.figures["resident once all is settled, MB"] = {OURS: ours.resident_mb, "aim": 350}
        report.figures["processor time of the load, µs an event"] = {OURS: ours.processor_seconds / report.count * 1e6}
    report.figures["disk after the load, MB"] = {OURS: ours.disk_mb, "aim": 300}


def _bulk(report: Report, scratch: Path, lines: Path) -> Path:
    file = scratch / "bulk.duckdb"
    file.unlink(missing_ok=True)
    report.figures[LOAD][BY_HAND] = report.count / bulk_insert_seconds(lines, file)
    some = min(report.count, _IN_BATCHES)
    report.figures[LOAD][PLAIN] = some / batches_seconds(bodies(lines, _BATCH, some), scratch)
    report.figures["disk after the load, MB"][BY_HAND] = file.stat().st_size / 1e6
    return file


def _ask_postgres(report: Report, events: Path, answers: dict[str, list[Row]]) -> None:
    with postgres() as there:
        report.figures[LOAD][Postgres.name] = report.count / there.load(events)
        report.figures["disk after the load, MB"][Postgres.name] = there.disk_mb
        for question in QUESTIONS:
            _agrees(question, answers[question.name], there.rows(question.postgres), Postgres.name)
            ask = partial(there.milliseconds, question.postgres)
            report.add(question.name, in_turns(_ROUNDS_OF_POSTGRES, {Postgres.name: ask}))


def _compared(question: Question, ours: Service) -> list[Row]:
    rows = ours.rows(question.endpoint, question.parameters)
    return [tuple(row[column] for column in question.columns or row) for row in rows]


def _agrees(question: Question, answer: list[Row], rows: list[Row], peer: str) -> None:
    """In the columns that are compared."""
    compared = [row[: len(question.columns) or None] for row in rows]
    assert answer == compared, f"{question.name}: not what {peer} answers"


def _ask_ms(question: Question, ours: Service) -> float:
    return elapsed_ms(lambda: ours.ask(question.endpoint, question.parameters))


def _asked(question: Question, answer: list[Row], ours: Service, peers: Mapping[str, ByHand]) -> dict[str, Times]:
    assert answer, f"{question.name}: no rows"
    acts: dict[str, Callable[[], float]] = {OURS: partial(_ask_ms, question, ours)}
    for name, peer in peers.items():
        _agrees(question, answer, peer.rows(question.duckdb), name)
        acts[name] = partial(peer.milliseconds, question.duckdb)
    return in_turns(_ROUNDS, acts)
