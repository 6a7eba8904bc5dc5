"""Repeated measurements: their median and interquartile range, ratios between two of them, and a committed baseline."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Times:
    """The times that repeated runs of the same work took, in milliseconds."""

    milliseconds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def spread(self) -> float:
        """Return half of the interquartile range, as a share of the median."""
        if len(self.milliseconds) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.milliseconds, n=4)
        return (high - low) / 2 / self.median

    def __add__(self, later: "Times") -> "Times":
        return Times([*self.milliseconds, *later.milliseconds])

    def __str__(self) -> str:
        return f"{self.median:.1f} ±{self.spread:.0%}"


def elapsed_ms(action: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    action()
    return (time.perf_counter() - started_at) * 1000


def measure_round_robin(rounds: int, actions: Mapping[str, Callable[[], float]]) -> dict[str, Times]:
    """Run the actions round-robin, so that other load on the machine slows all of them. Return their times by name.

    Each action returns its own time in milliseconds. A first round only warms up and is not counted.
    """
    measured: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            measured[name].append(action())
    return {name: Times(times) for name, times in measured.items()}


@dataclass(frozen=True)
class Ratio:
    """The median ratio of cordwood's time to a peer's time, and how much the ratio varies between rounds."""

    value: float
    noise: float

    def is_worse_than(self, before: float) -> bool:
        """Return whether the ratio exceeds an earlier ratio by more than 15 % plus its noise."""
        return self.value > before * (1.15 + self.noise)


def ratio(ours: Times, peer: Times) -> Ratio:
    """Return the median of the ratios of all rounds, because the machine's speed changes less within a round."""
    rounds = Times(
        [our_time / peer_time for our_time, peer_time in zip(ours.milliseconds, peer.milliseconds, strict=True)]
    )
    return Ratio(round(rounds.median, 3), rounds.spread)


class Baseline:
    """The committed ratios of one section of the baseline file, by name."""

    def __init__(self, file: Path, section: str) -> None:
        self._file = file
        self._section = section

    def regressions(self, ratios: Mapping[str, Ratio]) -> list[str]:
        """Return a line for each ratio that is worse than in the baseline. Names that are not in the baseline are
        skipped.
        """
        before = self._read().get(self._section, {})
        return [
            f"{name}: ratio {ratio.value}, baseline {before[name]}"
            for name, ratio in ratios.items()
            if name in before and ratio.is_worse_than(before[name])
        ]

    def write(self, ratios: Mapping[str, Ratio]) -> None:
        sections = self._read()
        sections[self._section] = {name: ratio.value for name, ratio in ratios.items()}
        self._file.write_text(json.dumps(sections, indent=2, ensure_ascii=False) + "\n")

    def _read(self) -> dict[str, dict[str, float]]:
        if not self._file.exists():
            return {}
        sections: dict[str, dict[str, float]] = json.loads(self._file.read_text())
        return sections
