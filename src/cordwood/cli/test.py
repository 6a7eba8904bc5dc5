"""Run the tests beside endpoint files, without a service.

The tests of `my.endpoint.sql` are in `my.endpoint.test.md`: events, a time, calls, and the expected rows, error or
alerts. Those of `my.alert.toml` are in `my.alert.test.md`. They run on DuckDB, or on the engine that --engine names:
chdb:// is ClickHouse inside this process; on a clickhouse:// server, databases are created for the tests and dropped at
the end. Without DIR, the tests in the folder of `--endpoints` or of the setting `serve.endpoints` run; without either,
those of the endpoints that ship. Exits with 1 if a test fails.

examples:
  cordwood test ./queries
  cordwood test ./queries --update
  cordwood test ./queries --junit report.xml
  cordwood test ./queries --engine chdb://
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from cordwood.cli.arguments import add_config, add_files, loaded_settings
from cordwood.cli.terminal import note, say
from cordwood.errors import BadTestPage
from cordwood.trials.runner import EMBEDDED, Trial, find_pages, junit, line_of, run_pages, summary, update


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of endpoint files (same as --endpoints)")
    add_files(parser)
    add_config(parser)
    parser.add_argument("--engine", default=EMBEDDED, metavar="ADDRESS", help="the engine to run on (default: duckdb)")
    parser.add_argument(
        "--update",
        action="store_true",
        help="replace the expected answers in the pages by the actual ones; review the diff",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit XML report")


def run(arguments: argparse.Namespace) -> int:
    arguments.endpoints = arguments.folder or arguments.endpoints
    settings = loaded_settings(arguments).settings
    began = time.perf_counter()
    folder = Path(settings.serve.endpoints) if settings.serve.endpoints else None
    trials = []
    for trial in run_pages(settings, find_pages(folder), arguments.engine):
        trials.append(trial)
        say(line_of(trial))
    seconds = time.perf_counter() - began
    if arguments.junit:
        _write(arguments.junit, junit(trials, seconds))
    return _write_updates(trials) if arguments.update else _print_report(trials, seconds)


def _print_report(trials: Sequence[Trial], seconds: float) -> int:
    if not trials:
        note("There are no tests. The tests of my.endpoint.sql are in my.endpoint.test.md beside it.")
        return 1
    say(summary(trials, seconds))
    return 0 if all(trial.passed for trial in trials) else 1


def _write_updates(trials: Sequence[Trial]) -> int:
    for page in update(trials):
        say(f"{page.file} was updated to the actual answers: review the difference.")
    return 0


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadTestPage(f"The report {file} cannot be written: {problem.strerror}.") from problem
