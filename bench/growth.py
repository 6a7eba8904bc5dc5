"""Whether questions grow with what is stored: the same three at half a million to eight million events, and their picture.

Events come at one rate: more of them is a longer history, so that the last hour holds as many at every size.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import duckdb

from bench.events import END, PROJECTS, bodies, make
from bench.service import Service, service
from bench.timing import Times, elapsed_ms, in_turns

SIZES = (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
# So many at eight million events as at one million, at most.
MOST_TIMES = 1.5
_A_DAY = 2_000_000 / 7
_ROUNDS = 15


@dataclass(frozen=True)
class Growth:
    """Medians by question, one a size; and what was resident after asking."""

    sizes: tuple[int, ...]
    times: dict[str, list[Times]]
    resident_mb: list[float]

    def add(self, times: Mapping[str, Times], resident_mb: float) -> None:
        for name, each in times.items():
            self.times.setdefault(name, []).append(each)
        self.resident_mb.append(resident_mb)

    def too_much(self) -> list[str]:
        """Those that take too many times as long at the end as at one million events."""
        first = self.sizes.index(1_000_000) if 1_000_000 in self.sizes else 0
        grown = {name: times[-1].median / times[first].median for name, times in self.times.items()}
        return [f"{name}: {times:.2f} times" for name, times in grown.items() if times > MOST_TIMES]

    def markdown(self) -> str:
        heads = " | ".join(f"{size / 1e6:g} M" for size in self.sizes)
        lines = [f"| events stored | {heads} |", "|---|" + "--:|" * len(self.sizes)]
        for name, times in self.times.items():
            lines.append(f"| {name}, ms | {' | '.join(str(each) for each in times)} |")
        resident = " | ".join(f"{value:.0f}" for value in self.resident_mb)
        return "\n".join([*lines, f"| resident after the questions, MB | {resident} |"]) + "\n"


def measure(scratch: Path, sizes: tuple[int, ...] = SIZES) -> Growth:
    events = scratch / f"growth-{sizes[-1]}.parquet"
    if not events.exists():
        make(sizes[-1], events, days=round(sizes[-1] / _A_DAY, 6))
    folder = scratch / "growing"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    growth = Growth(sizes, {}, [])
    for before, size in pairwise((0, *sizes)):
        with service(folder) as ours:
            _fill(ours, _slice(events, before, size, scratch / "slice.ndjson"))
        newest = datetime.fromisoformat(END) - timedelta(days=(sizes[-1] - size) / _A_DAY)
        with service(folder) as ours:
            growth.add(_asked(ours, newest.astimezone(UTC)), ours.resident_mb)
        print(f"{size:,} events asked", flush=True)
    shutil.rmtree(folder)
    return growth


def _fill(ours: Service, lines: Path) -> None:
    ours.load(bodies(lines, 5000), 4)
    ours.settle_slices()
    lines.unlink()


def _slice(events: Path, first: int, end: int, file: Path) -> Path:
    """Events of that range as lines, as they are posted."""
    duckdb.execute(
        "copy (select id, strftime(timestamp at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ') as timestamp, project,"
        f" event_message, metadata::json as metadata from read_parquet('{events}', file_row_number = true)"
        f" where file_row_number >= {first} and file_row_number < {end} order by file_row_number)"
        f" to '{file}' (format json)"
    )
    return file


def _asked(ours: Service, newest: datetime) -> dict[str, Times]:
    project = PROJECTS[3]
    last_hour = (newest - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last_day = (newest - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    counted = {"start": last_day, "project": project}
    asked: dict[str, Callable[[], bytes]] = {
        "newest 100 whole events": lambda: ours.ask("logs.all", {"project": project}),
        "newest 100 of the last hour": lambda: ours.ask(
            "logs.all", {"project": project, "iso_timestamp_start": last_hour}
        ),
        "counts of the last day": lambda: ours.ask("bench.counts-by-project", counted),
        "counts of the last day, kept": lambda: ours.ask("bench.counts-by-project", counted, kept=True),
    }
    for ask in asked.values():
        ask()
    # What a first question begins is not done when it is answered.
    ours.settle()
    return in_turns(_ROUNDS, {name: partial(elapsed_ms, ask) for name, ask in asked.items()})
