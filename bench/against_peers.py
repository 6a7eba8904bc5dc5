"""Every question through the real service, beside the bare engine over the same file and the incumbent's storage."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from bench.events import bodies, make
from bench.peers.duckdb_by_hand import ByHand, bulk_insert_seconds, by_hand
from bench.peers.postgres import Postgres, postgres
from bench.questions import QUESTIONS, Question, Row
from bench.service import Service, service
from bench.timing import Ratio, Times, elapsed_ms, in_turns, ratio

_BATCH = 5000
_CONNECTIONS = 4
_ROUNDS = 15
_STARTS = 5
# The incumbent's way takes a second a question.
_ROUNDS_OF_POSTGRES = 3


@dataclass
class Report:
    """What was measured: questions by name, and single figures in the order in which they were taken."""

    count: int
    questions: dict[str, dict[str, Times]] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def goals(self) -> dict[str, float]:
        return {question.name: question.goal_ms for question in QUESTIONS}

    def ratios(self) -> dict[str, Ratio]:
        asked = {name: ratio(times["cordwood"], times[ByHand.name]) for name, times in self.questions.items()}
        load = self.figures["load, events a second"]
        slower = Ratio(round(load[ByHand.name] / load["cordwood"], 3), 0.2)
        return {**asked, "load, as a multiple of the bare engine's time": slower}

    def markdown(self) -> str:
        names = ["cordwood", ByHand.name, Postgres.name]
        lines = [f"| | {' | '.join(names)} | ratio to DuckDB | goal |", "|---|--:|--:|--:|--:|--:|"]
        for name, times in self.questions.items():
            cells = [str(times[peer]) if peer in times else "–" for peer in names]
            times_over = ratio(times["cordwood"], times[ByHand.name]).value
            lines.append(f"| {name}, ms | {' | '.join(cells)} | {times_over:.2f} | {self.goals[name]:g} |")
        for name, values in self.figures.items():
            cells = [
                f"{values[peer]:,.0f}"
                if values.get(peer, 0) >= 10
                else f"{values[peer]:.2f}"
                if peer in values
                else "–"
                for peer in names
            ]
            goal = f"{values['goal']:,g}" if "goal" in values else "–"
            lines.append(f"| {name} | {' | '.join(cells)} | – | {goal} |")
        return "\n".join(lines) + "\n"


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
    with _by_hand(folder / "data", bulk) as here:
        answers = _ours(report, folder, more, here)
    bulk.unlink()
    if with_postgres:
        # Alone: it writes down what it was given for minutes, and the others would wait for it.
        _ask_postgres(report, events, answers)
    return report


def _ours(report: Report, folder: Path, more: list[str], here: ByHand) -> dict[str, list[Row]]:
    """The answers, by question; they are those of SQL by hand."""
    answers: dict[str, list[Row]] = {}
    first = here.rows(QUESTIONS[0].duckdb)
    starts = [_start_seconds(folder, more, first) for _ in range(_STARTS)]
    report.figures["start to first right answer, s"] = {"cordwood": median(starts), "goal": 1.0}
    with service(folder, *more) as ours:
        for question in QUESTIONS:
            answers[question.name] = _compared(question, ours)
            report.questions[question.name] = times = _asked(question, answers[question.name], ours, here)
            print(question.name, {name: str(each) for name, each in times.items()}, flush=True)
        report.figures["resident after the questions, MB"] = {"cordwood": ours.resident_mb, "goal": 350}
    return answers


def _start_seconds(folder: Path, more: list[str], first: list[Row]) -> float:
    """Until the first question is answered, and right."""
    began = time.perf_counter()
    with service(folder, *more) as ours:
        assert _compared(QUESTIONS[0], ours) == first
        return time.perf_counter() - began


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
        report.figures["resident idle, empty store, MB"] = {"cordwood": ours.resident_mb, "goal": 110}
        seconds = ours.load(bodies(lines, _BATCH), _CONNECTIONS)
        report.figures["load, events a second"] = {"cordwood": report.count / seconds, "goal": 40_000}
        report.figures["resident at the end of the load, MB"] = {"cordwood": ours.resident_mb}
        ours.settle(8)
        report.figures["processor time of the load, µs an event"] = {
            "cordwood": ours.processor_seconds / report.count * 1e6
        }
        report.figures["resident after the load, MB"] = {"cordwood": ours.resident_mb, "goal": 350}
    report.figures["disk after the load, MB"] = {"cordwood": ours.disk_mb, "goal": 300}


def _bulk(report: Report, scratch: Path, lines: Path) -> Path:
    file = scratch / "bulk.duckdb"
    file.unlink(missing_ok=True)
    report.figures["load, events a second"][ByHand.name] = report.count / bulk_insert_seconds(lines, file)
    report.figures["disk after the load, MB"][ByHand.name] = file.stat().st_size / 1e6
    return file


def _ask_postgres(report: Report, events: Path, answers: dict[str, list[Row]]) -> None:
    with postgres() as there:
        report.figures["load, events a second"][Postgres.name] = report.count / there.load(events)
        report.figures["disk after the load, MB"][Postgres.name] = there.disk_mb
        for question in QUESTIONS:
            answer = _cut(question, there.rows(question.postgres))
            assert answers[question.name] == answer, f"{question.name}: not what PostgreSQL answers"
            ask = partial(there.milliseconds, question.postgres)
            report.questions[question.name] |= in_turns(_ROUNDS_OF_POSTGRES, {Postgres.name: ask})


def _compared(question: Question, ours: Service) -> list[Row]:
    rows = ours.rows(question.endpoint, question.parameters)
    return [tuple(row[column] for column in question.columns or row) for row in rows]


def _cut(question: Question, rows: list[Row]) -> list[Row]:
    """To the columns that are compared."""
    return [row[: len(question.columns) or None] for row in rows]


def _asked(question: Question, answer: list[Row], ours: Service, here: ByHand) -> dict[str, Times]:
    assert answer, f"{question.name}: no rows"
    assert answer == _cut(question, here.rows(question.duckdb)), f"{question.name}: not what DuckDB answers"
    acts = {
        "cordwood": lambda: elapsed_ms(lambda: ours.ask(question.endpoint, question.parameters)),
        ByHand.name: lambda: here.milliseconds(question.duckdb),
    }
    return in_turns(_ROUNDS, acts)
