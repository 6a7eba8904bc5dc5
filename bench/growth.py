"""The growth of query times with the number of stored events: the same questions over 0.5 to 8 million events.

The rate of the events is constant, so more events are a longer history. The last hour has the same number of events at
every size.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import duckdb

from bench.events import END, PROJECTS, event_bodies, generate
from bench.service import Service, service
from bench.timing import Times, elapsed_ms, measure_round_robin

SIZES = (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
# The gate: how many times as long a question may take over eight million events as over one million.
MAX_GROWTH = 1.5
_EVENTS_PER_DAY = 2_000_000 / 7
_ROUNDS = 15


@dataclass(frozen=True)
class Growth:
    """The times of each question by number of stored events, and the resident memory after the questions."""

    sizes: tuple[int, ...]
    times: dict[str, list[Times]]
    resident_mb: list[float]

    def add(self, times: Mapping[str, Times], resident_mb: float) -> None:
        for name, each in times.items():
            self.times.setdefault(name, []).append(each)
        self.resident_mb.append(resident_mb)

    def gate_failures(self) -> list[str]:
        """Return a line for each question whose median time grows more than the gate permits."""
        first = self.sizes.index(1_000_000) if 1_000_000 in self.sizes else 0
        grown = {name: times[-1].median / times[first].median for name, times in self.times.items()}
        return [f"{name}: {times:.2f} times" for name, times in grown.items() if times > MAX_GROWTH]

    def markdown(self) -> str:
        column_headings = " | ".join(f"{size / 1e6:g} M" for size in self.sizes)
        lines = [f"| events stored | {column_headings} |", "|---|" + "--:|" * len(self.sizes)]
        for name, times in self.times.items():
            lines.append(f"| {name}, ms | {' | '.join(str(each) for each in times)} |")
        resident = " | ".join(f"{value:.0f}" for value in self.resident_mb)
        return "\n".join([*lines, f"| resident after the questions, MB | {resident} |"]) + "\n"


def measure(scratch: Path, sizes: tuple[int, ...] = SIZES) -> Growth:
    events = scratch / f"growth-{sizes[-1]}.parquet"
    if not events.exists():
        generate(sizes[-1], events, days=round(sizes[-1] / _EVENTS_PER_DAY, 6))
    folder = scratch / "growing"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    growth = Growth(sizes, {}, [])
    for before, size in pairwise((0, *sizes)):
        with service(folder) as running:
            _load_events(running, _write_lines(events, before, size, scratch / "next-events.ndjson"))
        newest = datetime.fromisoformat(END) - timedelta(days=(sizes[-1] - size) / _EVENTS_PER_DAY)
        with service(folder) as running:
            growth.add(_time_questions(running, newest.astimezone(UTC)), running.resident_mb)
        print(f"measured with {size:,} events", flush=True)
    shutil.rmtree(folder)
    return growth


def _load_events(running: Service, lines: Path) -> None:
    running.load(event_bodies(lines, 5000), 4)
    running.wait_for_compaction()
    lines.unlink()


def _write_lines(events: Path, first: int, end: int, file: Path) -> Path:
    """Copy the events with a range of row numbers from a Parquet file to an NDJSON file."""
    duckdb.execute(
        "copy (select id, strftime(timestamp at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ') as timestamp, project,"
        f" event_message, metadata::json as metadata from read_parquet('{events}', file_row_number = true)"
        f" where file_row_number >= {first} and file_row_number < {end} order by file_row_number)"
        f" to '{file}' (format json)"
    )
    return file


def _time_questions(running: Service, newest: datetime) -> dict[str, Times]:
    project = PROJECTS[3]
    last_hour = (newest - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last_day = (newest - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    count_parameters = {"start": last_day, "project": project}
    questions: dict[str, Callable[[], bytes]] = {
        "newest 100 whole events": lambda: running.query("logs.all", {"project": project}),
        "newest 100 of the last hour": lambda: running.query(
            "logs.all", {"project": project, "iso_timestamp_start": last_hour}
        ),
        "counts of the last day": lambda: running.query("bench.counts-by-project", count_parameters),
        "counts of the last day, kept": lambda: running.query(
            "bench.counts-by-project", count_parameters, use_cache=True
        ),
    }
    for ask in questions.values():
        ask()
    # The first queries may have started background work, which continues after their answers.
    running.wait_until_idle()
    return measure_round_robin(_ROUNDS, {name: partial(elapsed_ms, ask) for name, ask in questions.items()})
