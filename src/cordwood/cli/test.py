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

from cordwood.cli.arguments import add_config_option, add_definition_files_options, load_settings_with_flags
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import BadTestPage
from cordwood.trials.runner import (
    EMBEDDED_ENGINE,
    CaseResult,
    case_report,
    find_pages,
    junit_xml,
    results_summary,
    run_pages,
    update_expected_answers,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of endpoint files (same as --endpoints)")
    add_definition_files_options(parser)
    add_config_option(parser)
    parser.add_argument(
        "--engine", default=EMBEDDED_ENGINE, metavar="ADDRESS", help="the engine to run on (default: duckdb)"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="replace the expected answers in the pages by the actual ones; review the diff",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit XML report")


def run(arguments: argparse.Namespace) -> int:
    arguments.endpoints = arguments.folder or arguments.endpoints
    settings = load_settings_with_flags(arguments).settings
    began = time.perf_counter()
    folder = Path(settings.serve.endpoints) if settings.serve.endpoints else None
    trials = []
    for trial in run_pages(settings, find_pages(folder), arguments.engine):
        trials.append(trial)
        print_output(case_report(trial))
    seconds = time.perf_counter() - began
    if arguments.junit:
        _write_report(arguments.junit, junit_xml(trials, seconds))
    return _write_updated_pages(trials) if arguments.update else _print_report(trials, seconds)


def _print_report(trials: Sequence[CaseResult], seconds: float) -> int:
    if not trials:
        print_message("There are no tests. The tests of my.endpoint.sql are in my.endpoint.test.md beside it.")
        return 1
    print_output(results_summary(trials, seconds))
    return 0 if all(trial.passed for trial in trials) else 1


def _write_updated_pages(trials: Sequence[CaseResult]) -> int:
    for page in update_expected_answers(trials):
        print_output(f"{page.display_path} was updated to the actual answers: review the difference.")
    return 0


def _write_report(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadTestPage(f"The report {file} cannot be written: {problem.strerror}.") from problem
