"""`python -m bench.repeated`: a repeated count over a week, with and without partial answers, by the number of events.

python -m bench.repeated [--sizes N,N] [--rounds N] [--scratch DIR]

The events of eight days are generated, and the newest are of the present. For each size, two services have the same
events. They answer usage.api-counts over seven days in turns, without the cache of answers. One service has no space
for partial answers. A scratch folder keeps the services' data for the next run, which must be on the same day.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.events import PROJECTS, event_bodies, generate
from bench.service import Service, service
from bench.timing import Times, elapsed_ms, measure_round_robin

SIZES = (200_000, 2_000_000)
_DAYS_OF_EVENTS = 8
_EVENTS_IN_BODY = 5_000
_WITH, _WITHOUT = "with partial answers", "without"
_REPEATED_CALL = ("usage.api-counts", {"interval": "7day", "project": PROJECTS[3]})


@dataclass(frozen=True)
class RepeatedCounts:
    """The times with and without partial answers, and the size of the files with them, by the number of events."""

    sizes: tuple[int, ...]
    times: dict[str, list[Times]]
    file_kb: list[float]

    def markdown(self) -> str:
        column_headings = " | ".join(f"{size:,}" for size in self.sizes)
        lines = [f"| events stored | {column_headings} | growth |", "|---|" + "--:|" * (len(self.sizes) + 1)]
        for name, times in self.times.items():
            growth = times[-1].median / times[0].median
            lines.append(f"| {name}, ms | {' | '.join(map(str, times))} | {growth:.2f} |")
        ratios = [
            with_times.median / without_times.median
            for with_times, without_times in zip(self.times[_WITH], self.times[_WITHOUT], strict=True)
        ]
        lines.append(f"| ratio | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} | |")
        lines.append(f"| files, KB | {' | '.join(f'{size:.0f}' for size in self.file_kb)} | |")
        return "\n".join(lines) + "\n"


def measure(scratch: Path, sizes: tuple[int, ...], rounds: int) -> RepeatedCounts:
    end = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    repeated = RepeatedCounts(sizes, {_WITH: [], _WITHOUT: []}, [])
    for size in sizes:
        folders = {name: scratch / f"{size}-{name.partition(' ')[0]}" for name in repeated.times}
        if not folders[_WITH].exists():
            _load_events(folders[_WITH], generate(size, scratch / "events.ndjson", end=end, days=_DAYS_OF_EVENTS))
        shutil.rmtree(folders[_WITHOUT], ignore_errors=True)
        shutil.copytree(folders[_WITH], folders[_WITHOUT])
        (folders[_WITHOUT] / "cordwood.toml").write_text("[duckdb]\npartial_answers = 0\n")
        with ExitStack() as stack:
            running = {name: stack.enter_context(_start_service(folder)) for name, folder in folders.items()}
            for name, times in _time_in_turns(running, rounds).items():
                repeated.times[name].append(times)
        files = (folders[_WITH] / "data").rglob("*.partial")
        repeated.file_kb.append(sum(file.stat().st_size for file in files) / 1e3)
        print(f"measured with {size:,} events", flush=True)
    return repeated


def _start_service(folder: Path) -> AbstractContextManager[Service]:
    config = folder / "cordwood.toml"
    config.touch()
    return service(folder, "--config", str(config))


def _load_events(folder: Path, lines: Path) -> None:
    folder.mkdir(parents=True)
    with service(folder) as running:
        running.load(event_bodies(lines, _EVENTS_IN_BODY), 4)
        for _ in range(3):
            running.wait_for_compaction()
    lines.unlink()


def _time_in_turns(running: dict[str, Service], rounds: int) -> dict[str, Times]:
    """Query both services alternately. The answers must be equal, unless an event has become older than seven days
    meanwhile.
    """
    asks: dict[str, Callable[[], bytes]] = {
        name: partial(each.query, *_REPEATED_CALL) for name, each in running.items()
    }
    if all(len({ask() for ask in asks.values()}) > 1 for _ in range(10)):
        raise SystemExit("the answers differ")
    return measure_round_robin(rounds, {name: partial(elapsed_ms, ask) for name, ask in asks.items()})


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.repeated", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="the numbers of events, in rising order")
    parser.add_argument("--rounds", type=int, default=31, help="how often each service is asked")
    parser.add_argument("--scratch", type=Path, help="a folder that keeps the data for the next run")
    options = parser.parse_args()
    sizes = tuple(map(int, options.sizes.split(",")))
    with ExitStack() as stack:
        scratch = options.scratch or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scratch.mkdir(exist_ok=True)
        print(measure(scratch, sizes, options.rounds).markdown())


if __name__ == "__main__":
    main()
