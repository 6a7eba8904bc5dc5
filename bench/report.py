"""The measurements as a table in Markdown, as ratios for the baseline, and compared with the goals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from bench.peers.duckdb_handwritten import HANDWRITTEN, PLAIN_TABLE
from bench.peers.postgres import Postgres
from bench.peers.victorialogs import VictoriaLogs
from bench.questions import QUESTIONS
from bench.timing import Ratio, Times, ratio

OURS = "cordwood"
OURS_WITHOUT_PEERS = "cordwood alone"
LOAD_RATE = "load, events a second"
LOAD_GOAL = 40_000
# Events per second of the peers when the goals were set: DuckDB in one statement and in batches of 5,000, PostgreSQL by
# COPY.
_LOAD_RATES_WHEN_GOALS_WERE_SET = {HANDWRITTEN: 50_000, PLAIN_TABLE: 22_000, Postgres.name: 36_000}
_SYSTEMS = (OURS, HANDWRITTEN, PLAIN_TABLE, Postgres.name, VictoriaLogs.name)
_GOALS = {question.name: question.goal for question in QUESTIONS}


@dataclass
class Report:
    """The results of a run: times of questions and of starts, and single figures, each by name and by system.

    `without_peers` has the times of questions that the service answered without queries to the peers in between.
    """

    count: int
    questions: dict[str, dict[str, Times]] = field(default_factory=dict)
    without_peers: dict[str, Times] = field(default_factory=dict)
    starts: dict[str, Times] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, question: str, times: Mapping[str, Times]) -> None:
        """Append times of the question to its earlier times."""
        before = self.questions.setdefault(question, {})
        before.update({name: _merge_times(before.get(name), added) for name, added in times.items()})

    def add_without_peers(self, question: str, times: Times) -> None:
        self.without_peers[question] = _merge_times(self.without_peers.get(question), times)

    def ratios(self) -> dict[str, Ratio]:
        questions = {name: ratio(times[OURS], times[HANDWRITTEN]) for name, times in self.questions.items()}
        load = self.figures[LOAD_RATE]
        slower = Ratio(round(load[HANDWRITTEN] / load[OURS], 3), 0.2)
        started = ratio(self.starts[OURS], self.starts[HANDWRITTEN])
        to_logs = {
            f"{name}, to VictoriaLogs": ratio(times[OURS], times[VictoriaLogs.name])
            for name, times in self.questions.items()
            if VictoriaLogs.name in times
        }
        return {
            **questions,
            **to_logs,
            "load, as a multiple of the bare engine's time": slower,
            "start, as a multiple of the bare engine's": started,
        }

    def slowdown(self) -> float:
        """Return the median ratio of the peers' times in this run to their times when the goals were set."""
        slowdowns = [ratio for name, times in self.questions.items() for ratio in _slowdowns_of_peers(name, times)]
        return median(slowdowns) if slowdowns else 1.0

    def scaled_goals(self) -> dict[str, float]:
        """Return the goals in milliseconds, multiplied by the slowdown of the peers in this run."""
        slowdown = self.slowdown()
        return {name: _GOALS[name].ms * slowdown for name in self.questions}

    def markdown(self) -> str:
        # The table has columns for VictoriaLogs only if its binary is on this machine.
        with_logs = any(VictoriaLogs.name in times for times in self.questions.values())
        columns = _SYSTEMS if with_logs else _SYSTEMS[:-1]
        more = (
            "to by hand",
            "to plain table",
            *(["to VictoriaLogs"] if with_logs else []),
            OURS_WITHOUT_PEERS,
            "aim",
            "aim here",
        )
        lines = [f"| | {' | '.join((*columns, *more))} |", "|---|" + "--:|" * (len(columns) + len(more))]
        goals = self.scaled_goals()
        for name, times in self.questions.items():
            cells = [str(times[peer]) if peer in times else "–" for peer in columns]
            cells += [f"{ratio(times[OURS], times[HANDWRITTEN]).value:.2f}", _ratio_to_plain_table(name, times)]
            if with_logs:
                cells.append(f"{ratio(times[OURS], times[VictoriaLogs.name]).value:.2f}")
            cells += [str(self.without_peers[name]) if name in self.without_peers else "–"]
            lines.append(f"| {name}, ms | {' | '.join(cells)} | {_GOALS[name].ms:g} | {goals[name]:.1f} |")
        for name, values in self.figures.items():
            cells = [_format_figure(values.get(peer)) for peer in columns]
            cells += ["–"] * (len(more) - 2) + [_format_figure(values.get("aim")), self._scaled_goal(name, values)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _scaled_goal(self, name: str, values: Mapping[str, float]) -> str:
        """Return the goal of a figure, scaled by the speed of the peers. Only the load rate has a scaled goal."""
        if name != LOAD_RATE:
            return "–"
        ratios = (
            values[peer] / rate_when_set
            for peer, rate_when_set in _LOAD_RATES_WHEN_GOALS_WERE_SET.items()
            if peer in values
        )
        return _format_figure(LOAD_GOAL * median(ratios))


def _merge_times(before: Times | None, added: Times) -> Times:
    return added if before is None else before + added


def _ratio_to_plain_table(name: str, times: Mapping[str, Times]) -> str:
    """Return the ratio to the plain table in this run, and the same ratio when the goal was set."""
    goal = _GOALS[name]
    return f"{ratio(times[OURS], times[PLAIN_TABLE]).value:.2f} of {goal.ms / goal.duckdb_ms:.2f}"


def _slowdowns_of_peers(name: str, times: Mapping[str, Times]) -> list[float]:
    """Return each peer's time for a question, as a multiple of its time when the goal was set."""
    goal = _GOALS[name]
    when_set = {PLAIN_TABLE: goal.duckdb_ms, Postgres.name: goal.postgres_ms}
    return [times[peer].median / when_set[peer] for peer in when_set if peer in times]


def _format_figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:g}" if value == int(value) else f"{value:.2f}"
