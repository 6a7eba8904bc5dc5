"""Run the tests that stand beside endpoint files, without a service.

Tests of `my.endpoint.sql` stand in `my.endpoint.test.md`: events, a moment, calls, and the rows or the refusal that must follow.
They run on the embedded engine, or on that of --engine: chdb:// is ClickHouse inside this process, and a clickhouse://
server gets a database that is dropped in the end.

Without DIR those of `--endpoints` run, or of the setting; with neither, those of the endpoints that ship. Exits 1 when any fails.

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

from cordwood.cli.sources import add_config, add_files, loaded_settings
from cordwood.cli.terminal import note, say
from cordwood.errors import BadTestPage
from cordwood.trials.report import junit, line_of, summary
from cordwood.trials.run import EMBEDDED, Trial, find_pages, run_pages, update


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of endpoint files (same as --endpoints)")
    add_files(parser)
    add_config(parser)
    parser.add_argument(
        "--engine", default=EMBEDDED, metavar="ADDRESS", help="run them on this engine (default: duckdb)"
    )
    parser.add_argument("--update", action="store_true", help="have the pages expect what is answered; review the diff")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a report for build servers")


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
    return _updated(trials) if arguments.update else _judged(trials, seconds)


def _judged(trials: Sequence[Trial], seconds: float) -> int:
    if not trials:
        note("There is no test here. A page of them stands beside an endpoint's file: my.endpoint.test.md")
        return 1
    say(summary(trials, seconds))
    return 0 if all(trial.passed for trial in trials) else 1


def _updated(trials: Sequence[Trial]) -> int:
    for page in update(trials):
        say(f"{page.file} now expects what is answered: review the difference.")
    return 0


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadTestPage(f"The report {file} cannot be written: {problem.strerror}.") from problem
