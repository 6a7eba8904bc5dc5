"""The ClickHouse engine on chDB, compared in the same run with SQL written by hand for the same ClickHouse.

The handwritten SQL reads the table that the service stored, and a table made by hand: a JSON column, sorted by project
and time, with the same events inserted as JSONEachRow.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.against_peers import event_files
from bench.events import bodies
from bench.peers.clickhouse_by_hand import HANDMADE, STORED, TABLES, ClickHouseByHand, open_clickhouse
from bench.process_family import processor_seconds
from bench.questions import QUESTIONS, Question, Row
from bench.service import Service, service
from bench.timing import Ratio, Times, elapsed_ms, ratio

OURS = "cordwood"
_COLUMNS = (OURS, STORED, HANDMADE)
_BATCH = 5000
_SENDERS = 4
_EVENTS_OF_ONE_SENDER = 100_000
VISITS = 3
_ROUNDS = 9
_IDLE_SECONDS = 1.0
_LOAD, _LOAD_ALONE = "load, 4 senders, events a second", "load, 1 sender, events a second"
_LOAD_PROCESSOR = "processor time of the load, merges included, µs an event"
_BULK = "load in one statement, events a second"
_DISK = "disk, all parts merged, MB"


@dataclass
class Comparison:
    """The times of questions and single figures, by name and by system."""

    questions: dict[str, dict[str, Times]] = field(default_factory=dict)
    # The least processor time, in milliseconds.
    processor: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, question: str, name: str, times: Times, processor: Times) -> None:
        before = self.questions.setdefault(question, {})
        before[name] = before[name] + times if name in before else times
        least = self.processor.setdefault(question, {})
        least[name] = min(least.get(name, math.inf), *processor.milliseconds)

    def ratios(self) -> dict[str, Ratio]:
        """Return our processor times as multiples of those by hand over our table, and of the table made by hand."""
        load = self.figures[_LOAD_PROCESSOR]
        return {
            **{name: Ratio(round(least[OURS] / least[STORED], 3), 0.1) for name, least in self.processor.items()},
            "load": Ratio(round(load[OURS] / load[HANDMADE], 3), 0.2),
            "disk": Ratio(round(self.figures[_DISK][OURS] / self.figures[_DISK][HANDMADE], 3), 0.02),
        }

    def markdown(self) -> str:
        heads = [*_COLUMNS, "to its table", "to own table"]
        lines = [f"| | {' | '.join([*heads, *(f'processor: {head}' for head in heads)])} |", "|---|" + "--:|" * 10]
        for name, times in self.questions.items():
            cells = [str(times[column]) for column in _COLUMNS]
            cells += [f"{ratio(times[OURS], times[peer]).value:.2f}" for peer in (STORED, HANDMADE)]
            least = self.processor[name]
            cells += [f"{least[column]:.1f}" for column in _COLUMNS]
            cells += [f"{least[OURS] / least[peer]:.2f}" for peer in (STORED, HANDMADE)]
            lines.append(f"| {name}, ms | {' | '.join(cells)} |")
        for name, values in self.figures.items():
            cells = [f"{values[column]:,.0f}" if column in values else "–" for column in _COLUMNS]
            both = OURS in values and HANDMADE in values
            cells += ["–", f"{values[OURS] / values[HANDMADE]:.2f}" if both else "–", *["–"] * 5]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def measure(scratch: Path, count: int) -> Comparison:
    """Load `count` events into a service and into a table made by hand, and time all questions on both."""
    comparison = Comparison()
    _, lines = event_files(scratch, count)
    folder = scratch / "clickhouse"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _load(comparison, folder, lines, count)
    copy = folder / "copy"
    shutil.copytree(folder / "chdb", copy, symlinks=True)
    with open_clickhouse(copy) as by_hand:
        _load_by_hand(comparison, by_hand, lines, count, folder)
        with service(folder, "--engine", f"chdb://{folder}/chdb") as running:
            for question in QUESTIONS * VISITS:
                running.wait_until_idle(_IDLE_SECONDS)
                _time(comparison, question, running, by_hand)
            comparison.figures["resident after the questions, MB"] = {OURS: running.resident_mb}
        comparison.figures[_DISK] = {OURS: by_hand.merged_mb(STORED), HANDMADE: by_hand.merged_mb(HANDMADE)}
    return comparison


def _load(comparison: Comparison, folder: Path, lines: Path, count: int) -> None:
    """Load the events into a service; note its rate, memory and processor time."""
    figures = comparison.figures
    count_alone = min(count, _EVENTS_OF_ONE_SENDER)
    with (
        tempfile.TemporaryDirectory(dir=folder) as alone,
        service(Path(alone), "--engine", f"chdb://{alone}/chdb") as one,
    ):
        one.wait_until_idle()
        figures["resident idle, empty store, MB"] = {OURS: one.resident_mb}
        figures[_LOAD_ALONE] = {OURS: count_alone / one.load(bodies(lines, _BATCH, count_alone), 1)}
    with service(folder, "--engine", f"chdb://{folder}/chdb") as running:
        with running.memory_probe() as probe:
            figures[_LOAD] = {OURS: count / running.load(bodies(lines, _BATCH), _SENDERS)}
        figures["resident at most, during the load, MB"] = {OURS: probe.peak_bytes / 1e6}
        running.wait_for_compaction()
        figures["resident after the load, MB"] = {OURS: running.resident_mb}
        figures[_LOAD_PROCESSOR] = {OURS: running.processor_seconds / count * 1e6}


def _load_by_hand(comparison: Comparison, by_hand: ClickHouseByHand, lines: Path, count: int, scratch: Path) -> None:
    started_at = time.process_time()
    rate = count / by_hand.load_in_batches(bodies(lines, _BATCH), scratch)
    for name in (_LOAD, _LOAD_ALONE):
        comparison.figures[name][HANDMADE] = rate
    by_hand.wait_for_merges()
    comparison.figures[_LOAD_PROCESSOR][HANDMADE] = (time.process_time() - started_at) / count * 1e6
    comparison.figures[_BULK] = {HANDMADE: count / by_hand.bulk_insert_seconds(lines)}


def _time(comparison: Comparison, question: Question, running: Service, by_hand: ClickHouseByHand) -> None:
    """Compare the answers, then time the service and the handwritten SQL round-robin."""
    answer = _compared_columns(question, running)
    assert answer, f"{question.name}: no rows"
    actions: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}
    actions[OURS] = (partial(_ask_ms, question, running), partial(processor_seconds, running.process.pid))
    for name, table in TABLES.items():
        sql = table.sql(question)
        rows = [row[: len(question.columns)] for row in by_hand.rows(sql)]
        assert answer == rows, f"{question.name}: {name} gives another answer"
        actions[name] = (partial(by_hand.milliseconds, sql), time.process_time)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for _ in range(_ROUNDS + 1):
        for name, (action, read_processor_seconds) in actions.items():
            before = read_processor_seconds()
            elapsed = action()
            measured[name].append((elapsed, (read_processor_seconds() - before) * 1000))
    for name, pairs in measured.items():
        # The first round warms up.
        elapsed_times, processor_times = zip(*pairs[1:], strict=True)
        comparison.add(question.name, name, Times(elapsed_times), Times(processor_times))
    print(
        question.name, {name: f"{least:.1f}" for name, least in comparison.processor[question.name].items()}, flush=True
    )


def _compared_columns(question: Question, running: Service) -> list[Row]:
    rows = running.rows(question.endpoint, question.parameters)
    return [tuple(row[column] for column in question.columns) for row in rows]


def _ask_ms(question: Question, running: Service) -> float:
    return elapsed_ms(lambda: running.ask(question.endpoint, question.parameters))
