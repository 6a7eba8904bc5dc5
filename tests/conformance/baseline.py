"""The expected outcome of each conformance case on each engine, which is stored in `baseline.tsv`.

`python -m tests.conformance.baseline` runs all cases and rewrites this file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance import cases
from tests.conformance.outcomes import OUTCOMES, ClickHouse, DuckDB, EngineOutcomes

BASELINE_FILE = Path(__file__).with_name("baseline.tsv")
BASELINE_COMMAND = "make baseline"

# The outcomes, by engine and case.
Outcomes = Mapping[str, Mapping[str, str]]


def read_baseline() -> Outcomes:
    head, *rows = (line.split("\t") for line in BASELINE_FILE.read_text().splitlines())
    engines = head[1:]
    return {engine: {row[0]: row[at] for row in rows} for at, engine in enumerate(engines, start=1)}


def write_baseline(engine_outcomes: Sequence[EngineOutcomes]) -> None:
    """Write the outcomes of all engines to the file."""
    engines = [outcome.engine for outcome in engine_outcomes]
    rows = [
        "\t".join([name, *(outcome.outcomes[name] for outcome in engine_outcomes)])
        for name in sorted(engine_outcomes[0].outcomes)
    ]
    BASELINE_FILE.write_text("\n".join(["\t".join(["case", *engines]), *rows]) + "\n")


def regressions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return _changed(before, now, -1)


def improvements(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return _changed(before, now, 1)


def _changed(before: Mapping[str, str], now: Mapping[str, str], sign: int) -> list[str]:
    """Return a line for each case whose outcome became better or worse, as requested, with both outcomes."""
    common_names = [name for name in now if name in before]
    return [
        f"{name}: {before[name]} -> {now[name]}"
        for name in common_names
        if sign * (OUTCOMES.index(before[name]) - OUTCOMES.index(now[name])) > 0
    ]


def main() -> None:
    engine_outcomes = [runner.run(cases.read_cases()) for runner in (DuckDB(), ClickHouse())]
    write_baseline(engine_outcomes)


if __name__ == "__main__":
    main()
