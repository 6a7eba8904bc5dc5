"""Times of one thing asked again and again: the median, and how far the middle half of them lies apart."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Times:
    milliseconds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def spread(self) -> float:
        """Half of the middle half, as a share of the median."""
        if len(self.milliseconds) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.milliseconds, n=4)
        return (high - low) / 2 / self.median

    def __add__(self, later: "Times") -> "Times":
        return Times([*self.milliseconds, *later.milliseconds])

    def __str__(self) -> str:
        return f"{self.median:.1f} ±{self.spread:.0%}"


def elapsed_ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def in_turns(rounds: int, acts: Mapping[str, Callable[[], float]]) -> dict[str, Times]:
    """One after the other, round by round, so that a busy machine is busy for all; the first round warms."""
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for act in acts.values():
        act()
    for _ in range(rounds):
        for name, act in acts.items():
            taken[name].append(act())
    return {name: Times(times) for name, times in taken.items()}


@dataclass(frozen=True)
class Ratio:
    """Ours as a multiple of a peer's, and how far that of one round lies from that of another."""

    value: float
    noise: float

    def is_worse_than(self, before: float) -> bool:
        return self.value > before * (1.15 + self.noise)


def ratio(ours: Times, peer: Times) -> Ratio:
    """Of each round by itself: a machine that is now fast and now slow is so for both."""
    rounds = Times([one / other for one, other in zip(ours.milliseconds, peer.milliseconds, strict=True)])
    return Ratio(round(rounds.median, 3), rounds.spread)


class Baseline:
    """The committed ratios, one a name; what is worse beyond noise is told, what is new is not judged."""

    def __init__(self, file: Path, section: str) -> None:
        self._file = file
        self._section = section

    def worse(self, ratios: Mapping[str, Ratio]) -> list[str]:
        before = self._read().get(self._section, {})
        return [
            f"{name}: {ratio.value} times, before {before[name]}"
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
