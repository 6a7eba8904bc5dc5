"""Patterns of durations and sizes in texts of events, for the rules of every engine."""

from collections.abc import Mapping
from typing import Final

# A duration in Go's notation, as a whole: a sign and at least one number with a unit.
DURATION: Final = "[+-]?(?:[0-9]+(?:[.][0-9]+)?(?:ns|us|µs|μs|ms|s|m|h))+"
# The number before each unit, with what follows a unit that another one begins with, and the seconds of the unit.
DURATION_UNITS: Final = (
    ("([0-9.]+)h", "3600"),
    ("([0-9.]+)m(?:[^s]|$)", "60"),
    ("([0-9.]+)s", "1"),
    ("([0-9.]+)ms", "0.001"),
    ("([0-9.]+)[uµμ]s", "0.000001"),
    ("([0-9.]+)ns", "0.000000001"),
)
# A duration without a unit.
ZEROS: Final = "('0', '+0', '-0')"

SIZE: Final = "[0-9]+(?:[.][0-9]+)? ?[A-Za-z]*"
SIZE_NUMBER: Final = "^([0-9.]+)"
SIZE_UNIT: Final = "([A-Za-z]*)$"
# Bytes in each unit of a size, in lower case; a number without one is bytes.
SIZE_UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("kmgtp", 1) for end in ("", "b")},
    **{f"{letter}i{end}": 1024**power for power, letter in enumerate("kmgtp", 1) for end in ("", "b")},
}
