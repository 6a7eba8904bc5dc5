"""The ClickHouse engine on chDB, compared in the same run with handwritten SQL for the same ClickHouse.

The handwritten SQL reads the table that the service stored, and a table of its own: a JSON column, sorted by project
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
from bench.events import event_bodies
from bench.peers.clickhouse_handwritten import OWN_TABLE, SERVICE_TABLE, TABLES, HandwrittenClickHouse, open_clickhouse
from bench.process_family import processor_seconds
from bench.questions import QUESTIONS, Question, Row
from bench.service import Service, service
from bench.timing import Ratio, Times, elapsed_ms, ratio

OURS = "cordwood"
_SYSTEMS = (OURS, SERVICE_TABLE, OWN_TABLE)
_BATCH_SIZE = 5000
_SENDERS = 4
_EVENTS_OF_ONE_SENDER = 100_000
MEASUREMENT_PASSES = 3
_ROUNDS = 9
_IDLE_SECONDS = 1.0
_LOAD_WITH_FOUR_SENDERS, _LOAD_WITH_ONE_SENDER = "load, 4 senders, events a second", "load, 1 sender, events a second"
_LOAD_PROCESSOR = "processor time of the load, merges included, µs an event"
_BULK_LOAD = "load in one statement, events a second"
_DISK_SPACE = "disk, all parts merged, MB"


@dataclass
class Comparison:
    """The times of questions, and single figures, both by name and by system."""

    questions: dict[str, dict[str, Times]] = field(default_factory=dict)
    # The minimum processor time of each question on each system, in milliseconds.
    processor: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, question: str, name: str, times: Times, processor: Times) -> None:
        before = self.questions.setdefault(question, {})
        before[name] = before[name] + times if name in before else times
        least = self.processor.setdefault(question, {})
        least[name] = min(least.get(name, math.inf), *processor.milliseconds)

    def ratios(self) -> dict[str, Ratio]:
        """Return our processor times as multiples of those of the handwritten SQL.

        The handwritten SQL reads either the service's table or its own table.
        """
        load = self.figures[_LOAD_PROCESSOR]
        return {
            **{
                name: Ratio(round(least[OURS] / least[SERVICE_TABLE], 3), 0.1) for name, least in self.processor.items()
            },
            "load": Ratio(round(load[OURS] / load[OWN_TABLE], 3), 0.2),
            "disk": Ratio(round(self.figures[_DISK_SPACE][OURS] / self.figures[_DISK_SPACE][OWN_TABLE], 3), 0.02),
        }

    def markdown(self) -> str:
        column_headings = [*_SYSTEMS, "to its table", "to own table"]
        lines = [
            f"| | {' | '.join([*column_headings, *(f'processor: {head}' for head in column_headings)])} |",
            "|---|" + "--:|" * 10,
        ]
        for name, times in self.questions.items():
            cells = [str(times[column]) for column in _SYSTEMS]
            cells += [f"{ratio(times[OURS], times[peer]).value:.2f}" for peer in (SERVICE_TABLE, OWN_TABLE)]
            least = self.processor[name]
            cells += [f"{least[column]:.1f}" for column in _SYSTEMS]
            cells += [f"{least[OURS] / least[peer]:.2f}" for peer in (SERVICE_TABLE, OWN_TABLE)]
            lines.append(f"| {name}, ms | {' | '.join(cells)} |")
        for name, values in self.figures.items():
            cells = [f"{values[column]:,.0f}" if column in values else "–" for column in _SYSTEMS]
            has_both = OURS in values and OWN_TABLE in values
            cells += ["–", f"{values[OURS] / values[OWN_TABLE]:.2f}" if has_both else "–", *["–"] * 5]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def measure(scratch: Path, count: int) -> Comparison:
    """Load `count` events into a service and into a separate table, and time all questions on both."""
    comparison = Comparison()
    _, lines = event_files(scratch, count)
    folder = scratch / "clickhouse"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _load(comparison, folder, lines, count)
    copy = folder / "copy"
    shutil.copytree(folder / "chdb", copy, symlinks=True)
    with open_clickhouse(copy) as handwritten:
        _load_by_hand(comparison, handwritten, lines, count, folder)
        with service(folder, "--engine", f"chdb://{folder}/chdb") as running:
            for question in QUESTIONS * MEASUREMENT_PASSES:
                running.wait_until_idle(_IDLE_SECONDS)
                _time_question(comparison, question, running, handwritten)
            comparison.figures["resident after the questions, MB"] = {OURS: running.resident_mb}
        comparison.figures[_DISK_SPACE] = {
            OURS: handwritten.merged_mb(SERVICE_TABLE),
            OWN_TABLE: handwritten.merged_mb(OWN_TABLE),
        }
    return comparison


def _load(comparison: Comparison, folder: Path, lines: Path, count: int) -> None:
    """Load the events into a service, and record its rate, memory and processor time."""
    figures = comparison.figures
    single_sender_count = min(count, _EVENTS_OF_ONE_SENDER)
    with (
        tempfile.TemporaryDirectory(dir=folder) as single_sender_rate,
        service(Path(single_sender_rate), "--engine", f"chdb://{single_sender_rate}/chdb") as name,
    ):
        name.wait_until_idle()
        figures["resident idle, empty store, MB"] = {OURS: name.resident_mb}
        figures[_LOAD_WITH_ONE_SENDER] = {
            OURS: single_sender_count / name.load(event_bodies(lines, _BATCH_SIZE, single_sender_count), 1)
        }
    with service(folder, "--engine", f"chdb://{folder}/chdb") as running:
        with running.memory_probe() as probe:
            figures[_LOAD_WITH_FOUR_SENDERS] = {OURS: count / running.load(event_bodies(lines, _BATCH_SIZE), _SENDERS)}
        figures["resident at most, during the load, MB"] = {OURS: probe.peak_bytes / 1e6}
        running.wait_for_compaction()
        figures["resident after the load, MB"] = {OURS: running.resident_mb}
        figures[_LOAD_PROCESSOR] = {OURS: running.processor_seconds / count * 1e6}


def _load_by_hand(
    comparison: Comparison, handwritten: HandwrittenClickHouse, lines: Path, count: int, scratch: Path
) -> None:
    started_at = time.process_time()
    rate = count / handwritten.load_in_batches(event_bodies(lines, _BATCH_SIZE), scratch)
    for name in (_LOAD_WITH_FOUR_SENDERS, _LOAD_WITH_ONE_SENDER):
        comparison.figures[name][OWN_TABLE] = rate
    handwritten.wait_for_merges()
    comparison.figures[_LOAD_PROCESSOR][OWN_TABLE] = (time.process_time() - started_at) / count * 1e6
    comparison.figures[_BULK_LOAD] = {OWN_TABLE: count / handwritten.bulk_insert_seconds(lines)}


def _time_question(
    comparison: Comparison, question: Question, running: Service, handwritten: HandwrittenClickHouse
) -> None:
    """Check that the answers are equal, then time the service and the handwritten SQL round-robin."""
    answer = _compared_columns(question, running)
    assert answer, f"{question.name}: no rows"
    actions: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}
    actions[OURS] = (partial(_time_request_ms, question, running), partial(processor_seconds, running.process.pid))
    for name, table in TABLES.items():
        sql = table.sql(question)
        rows = [row[: len(question.columns)] for row in handwritten.rows(sql)]
        assert answer == rows, f"{question.name}: {name} gives another answer"
        actions[name] = (partial(handwritten.milliseconds, sql), time.process_time)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for _ in range(_ROUNDS + 1):
        for name, (action, read_processor_seconds) in actions.items():
            before = read_processor_seconds()
            elapsed = action()
            measured[name].append((elapsed, (read_processor_seconds() - before) * 1000))
    for name, pairs in measured.items():
        # The first round only warms up, so its times are not used.
        elapsed_times, processor_times = zip(*pairs[1:], strict=True)
        comparison.add(question.name, name, Times(elapsed_times), Times(processor_times))
    print(
        question.name, {name: f"{least:.1f}" for name, least in comparison.processor[question.name].items()}, flush=True
    )


def _compared_columns(question: Question, running: Service) -> list[Row]:
    rows = running.rows(question.endpoint, question.parameters)
    return [tuple(row[column] for column in question.columns) for row in rows]


def _time_request_ms(question: Question, running: Service) -> float:
    return elapsed_ms(lambda: running.query(question.endpoint, question.parameters))
