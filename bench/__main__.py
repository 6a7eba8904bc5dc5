"""Benchmarks with generated events in a real service, compared in the same run with DuckDB in process and PostgreSQL.

python -m bench [questions] [loading] [growth]     run the named benchmarks, or these three
python -m bench clickhouse                         the ClickHouse engine and handwritten SQL on the same ClickHouse
  --check             fail if a ratio exceeds bench/baseline.json by more than noise, or query times grow too much
  --update            write bench/baseline.json, the tables of docs/performance.md and its pictures
  --events N          number of events of `questions` (default: 2,000,000) and `clickhouse` (500,000)
  --engine ENGINE     run `questions` on another engine: chdb:///… or clickhouse://…
  --scratch DIR       keep the generated events in this folder for the next run
  --without-postgres  skip PostgreSQL, on a machine where it cannot be installed
  --victorialogs FILE run `questions` on VictoriaLogs too: the path of its binary
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import against_peers, clickhouse, growth, loading
from bench.pictures import growth_picture, questions_picture
from bench.timing import Baseline, Ratio

_BENCH_FOLDER = Path(__file__).parent
_BASELINE = _BENCH_FOLDER / "baseline.json"
_PERFORMANCE_PAGE = _BENCH_FOLDER.parent / "docs" / "performance.md"
_PICTURES_FOLDER = _BENCH_FOLDER.parent / "docs" / "pictures"
_DEFAULT_BENCHMARKS = ("questions", "loading", "growth")
_OPTIONAL_BENCHMARKS = ("clickhouse",)
_DEFAULT_EVENTS, _DEFAULT_CLICKHOUSE_EVENTS = 2_000_000, 500_000


def main() -> int:
    options = _parse_options()
    regressions: list[str] = []
    with _scratch_folder(options.scratch) as scratch:
        for subject in options.subjects or _DEFAULT_BENCHMARKS:
            table, ratios, failed_gates = _BENCHMARKS[subject](scratch, options)
            print(f"\n{subject}\n\n{table}", flush=True)
            section = f"{subject} {options.engine.partition(chr(58))[0]}" if options.engine else subject
            baseline = Baseline(_BASELINE, section)
            regressions += [*baseline.regressions(ratios), *failed_gates]
            if options.update:
                baseline.write(ratios)
                _write_table(section, table)
    print(
        "\n".join(f"WORSE {line}" for line in regressions) or "No ratio is worse than its baseline, and no gate failed."
    )
    return 1 if regressions and options.check else 0


def _parse_options() -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument(
        "subjects", nargs="*", choices=[*_DEFAULT_BENCHMARKS, *_OPTIONAL_BENCHMARKS, []], help=argparse.SUPPRESS
    )
    cli.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    cli.add_argument("--update", action="store_true", help=argparse.SUPPRESS)
    cli.add_argument("--events", type=int, help=argparse.SUPPRESS)
    cli.add_argument("--engine", help=argparse.SUPPRESS)
    cli.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    cli.add_argument("--without-postgres", dest="postgres", action="store_false", help=argparse.SUPPRESS)
    cli.add_argument("--victorialogs", type=Path, help=argparse.SUPPRESS)
    return cli.parse_args()


@contextmanager
def _scratch_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the given folder, which is created if necessary. If none is given, yield a temporary folder."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


# A table in Markdown, the ratios to compare with the baseline, and a line for each gate that failed.
Measurement = tuple[str, dict[str, Ratio], list[str]]


def _run_questions(scratch: Path, options: argparse.Namespace) -> Measurement:
    report = against_peers.measure(
        scratch,
        options.events or _DEFAULT_EVENTS,
        with_postgres=options.postgres,
        engine=options.engine,
        victorialogs_binary=options.victorialogs,
    )
    if options.update and not options.engine:
        _write_picture("questions", questions_picture(report.questions, report.scaled_goals()))
    return report.markdown(), report.ratios(), []


def _run_loading(scratch: Path, options: argparse.Namespace) -> Measurement:
    result = loading.measure(scratch, with_postgres=options.postgres)
    return result.markdown(), result.ratios(), []


def _run_growth(scratch: Path, options: argparse.Namespace) -> Measurement:
    result = growth.measure(scratch)
    if options.update:
        _write_picture("growth", growth_picture(result))
    return result.markdown(), {}, result.gate_failures()


def _run_clickhouse(scratch: Path, options: argparse.Namespace) -> Measurement:
    result = clickhouse.measure(scratch, options.events or _DEFAULT_CLICKHOUSE_EVENTS)
    return result.markdown(), result.ratios(), []


_BENCHMARKS = {
    "questions": _run_questions,
    "loading": _run_loading,
    "growth": _run_growth,
    "clickhouse": _run_clickhouse,
}


def _write_picture(name: str, picture: str) -> None:
    _PICTURES_FOLDER.mkdir(exist_ok=True)
    (_PICTURES_FOLDER / f"{name}.svg").write_text(picture)


def _write_table(section: str, table: str) -> None:
    """Replace the table between the section's markers in docs/performance.md. Without these markers, change nothing."""
    page = _PERFORMANCE_PAGE.read_text()
    pattern = re.compile(rf"(<!-- {re.escape(section)} -->\n).*?(<!-- end -->)", re.DOTALL)
    _PERFORMANCE_PAGE.write_text(pattern.sub(lambda match: f"{match[1]}\n{table}\n{match[2]}", page))


if __name__ == "__main__":
    sys.exit(main())
