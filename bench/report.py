"""What was measured, as a table, as ratios to keep, and beside what was aimed at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from bench.peers.duckdb_by_hand import BY_HAND, PLAIN
from bench.peers.postgres import Postgres
from bench.questions import QUESTIONS
from bench.timing import Ratio, Times, ratio

OURS = "cordwood"
ALONE = "cordwood alone"
LOAD = "load, events a second"
LOAD_AIM = 40_000
# What the peers took where and when that was written down: in one statement, in batches of 5,000, by COPY.
_LOADED_THEN = {BY_HAND: 50_000, PLAIN: 22_000, Postgres.name: 36_000}
_COLUMNS = (OURS, BY_HAND, PLAIN, Postgres.name)
_AIMS = {question.name: question.aim for question in QUESTIONS}


@dataclass
class Report:
    """Questions by name and who answered, starts by whom, and single figures in the order in which they were taken.

    `alone` is how long questions take us that nobody else is asked between.
    """

    count: int
    questions: dict[str, dict[str, Times]] = field(default_factory=dict)
    alone: dict[str, Times] = field(default_factory=dict)
    starts: dict[str, Times] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, question: str, times: Mapping[str, Times]) -> None:
        """To what was taken of the question before."""
        before = self.questions.setdefault(question, {})
        before.update({name: _together(before.get(name), taken) for name, taken in times.items()})

    def add_alone(self, question: str, times: Times) -> None:
        self.alone[question] = _together(self.alone.get(question), times)

    def ratios(self) -> dict[str, Ratio]:
        asked = {name: ratio(times[OURS], times[BY_HAND]) for name, times in self.questions.items()}
        load = self.figures[LOAD]
        slower = Ratio(round(load[BY_HAND] / load[OURS], 3), 0.2)
        started = ratio(self.starts[OURS], self.starts[BY_HAND])
        return {
            **asked,
            "load, as a multiple of the bare engine's time": slower,
            "start, as a multiple of the bare engine's": started,
        }

    def slower(self) -> float:
        """How many times as long the peers take here and now as where and when the aims were written down, in the median."""
        found = [ratio for name, times in self.questions.items() for ratio in _slower(name, times)]
        return median(found) if found else 1.0

    def aims_here(self) -> dict[str, float]:
        """What a question may take at most, where its peers take so much longer."""
        slower = self.slower()
        return {name: _AIMS[name].ms * slower for name in self.questions}

    def markdown(self) -> str:
        told = ("to by hand", "to plain table", ALONE, "aim", "aim here")
        lines = [f"| | {' | '.join((*_COLUMNS, *told))} |", "|---|" + "--:|" * (len(_COLUMNS) + len(told))]
        here = self.aims_here()
        for name, times in self.questions.items():
            cells = [str(times[peer]) if peer in times else "–" for peer in _COLUMNS]
            cells += [f"{ratio(times[OURS], times[BY_HAND]).value:.2f}", _beside_plain(name, times)]
            cells += [str(self.alone[name]) if name in self.alone else "–"]
            lines.append(f"| {name}, ms | {' | '.join(cells)} | {_AIMS[name].ms:g} | {here[name]:.1f} |")
        for name, values in self.figures.items():
            cells = [_figure(values.get(peer)) for peer in (*_COLUMNS, "aim")]
            cells[-1:] = ["–", "–", "–", cells[-1], self._figure_here(name, values)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _figure_here(self, name: str, values: Mapping[str, float]) -> str:
        if name != LOAD:
            return "–"
        return _figure(LOAD_AIM * median(values[peer] / then for peer, then in _LOADED_THEN.items() if peer in values))


def _together(before: Times | None, taken: Times) -> Times:
    return taken if before is None else before + taken


def _beside_plain(name: str, times: Mapping[str, Times]) -> str:
    """Ours as a multiple of the plain table's, asked in the same round, and what the aim was of it then."""
    aim = _AIMS[name]
    return f"{ratio(times[OURS], times[PLAIN]).value:.2f} of {aim.ms / aim.duckdb:.2f}"


def _slower(name: str, times: Mapping[str, Times]) -> list[float]:
    aim = _AIMS[name]
    then = {PLAIN: aim.duckdb, Postgres.name: aim.postgres}
    return [times[peer].median / then[peer] for peer in then if peer in times]


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:g}" if value == int(value) else f"{value:.2f}"
