"""The benchmarks: made-up events through a real service, beside the bare engine and PostgreSQL in the same run.

python -m bench [questions] [loading] [growth]     those named; all without a name
  --check             fail when a ratio is worse than bench/baseline.json beyond noise, or a growth gate is broken
  --update            write bench/baseline.json, the tables of docs/performance.md and its pictures
  --events N          for `questions`, 2,000,000 unless told
  --engine ENGINE     `questions` on another engine: chdb:///… or clickhouse://…
  --scratch DIR       keeps the made-up events for the next run
  --without-postgres  where it cannot be installed
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import against_peers, growth, loading
from bench.pictures import growth_picture, questions_picture
from bench.timing import Baseline, Ratio

_HERE = Path(__file__).parent
_BASELINE = _HERE / "baseline.json"
_PAGE = _HERE.parent / "docs" / "performance.md"
_PICTURES = _HERE.parent / "docs" / "pictures"
_SUBJECTS = ("questions", "loading", "growth")


def main() -> int:
    asked = _arguments()
    worse: list[str] = []
    with _scratch(asked.scratch) as scratch:
        for subject in asked.subjects or _SUBJECTS:
            table, ratios, broken = _MEASURES[subject](scratch, asked)
            print(f"\n{subject}\n\n{table}", flush=True)
            section = f"{subject} {asked.engine.partition(chr(58))[0]}" if asked.engine else subject
            baseline = Baseline(_BASELINE, section)
            worse += [*baseline.worse(ratios), *broken]
            if asked.update:
                baseline.write(ratios)
                _write_table(section, table)
    print("\n".join(f"WORSE {line}" for line in worse) or "Nothing is worse than before.")
    return 1 if worse and asked.check else 0


def _arguments() -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("subjects", nargs="*", choices=[*_SUBJECTS, []], help=argparse.SUPPRESS)
    cli.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    cli.add_argument("--update", action="store_true", help=argparse.SUPPRESS)
    cli.add_argument("--events", type=int, default=2_000_000, help=argparse.SUPPRESS)
    cli.add_argument("--engine", help=argparse.SUPPRESS)
    cli.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    cli.add_argument("--without-postgres", dest="postgres", action="store_false", help=argparse.SUPPRESS)
    return cli.parse_args()


@contextmanager
def _scratch(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# A table to read, ratios to compare with the baseline, and gates that are broken.
Measured = tuple[str, dict[str, Ratio], list[str]]


def _questions(scratch: Path, asked: argparse.Namespace) -> Measured:
    report = against_peers.measure(scratch, asked.events, with_postgres=asked.postgres, engine=asked.engine)
    if asked.update and not asked.engine:
        _draw("questions", questions_picture(report.questions, report.aims_here()))
    return report.markdown(), report.ratios(), []


def _loading(scratch: Path, asked: argparse.Namespace) -> Measured:
    taken = loading.measure(scratch, with_postgres=asked.postgres)
    return taken.markdown(), taken.ratios(), []


def _growth(scratch: Path, asked: argparse.Namespace) -> Measured:
    grown = growth.measure(scratch)
    if asked.update:
        _draw("growth", growth_picture(grown))
    return grown.markdown(), {}, grown.too_much()


_MEASURES = {"questions": _questions, "loading": _loading, "growth": _growth}


def _draw(name: str, picture: str) -> None:
    _PICTURES.mkdir(exist_ok=True)
    (_PICTURES / f"{name}.svg").write_text(picture)


def _write_table(section: str, table: str) -> None:
    """Between the page's own marks of that section; a page without them is left as it is."""
    page = _PAGE.read_text()
    marked = re.compile(rf"(<!-- {re.escape(section)} -->\n).*?(<!-- end -->)", re.DOTALL)
    _PAGE.write_text(marked.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page))


if __name__ == "__main__":
    sys.exit(main())
