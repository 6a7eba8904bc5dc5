"""Durations and sizes in Loki's notation: `1h30m`, `250ms`, `20MB`, `1.5KiB`."""

import re
from collections.abc import Mapping
from typing import Final

from cordwood.sql.internal_functions import SIZE_UNITS

# Seconds in each unit of a duration. Days and longer units are Prometheus's; Go's notation ends with hours.
SECONDS_PER_UNIT: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 7 * 86_400.0,
    "y": 365 * 86_400.0,
}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h|d|w|y)")
_DURATION_PATTERN: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]+)")


def read_duration(text: str) -> float | None:
    """Return the seconds of a duration; None if the text is not a duration."""
    if not _DURATION_PATTERN.fullmatch(text):
        return None
    return sum(float(part[1]) * SECONDS_PER_UNIT[part[2]] for part in _DURATION_PART.finditer(text))


def read_bytes(text: str) -> float | None:
    """Return the bytes of a size with a unit; None if the text is not a size."""
    match = _SIZE_PATTERN.fullmatch(text)
    unit = SIZE_UNITS.get(match[2].lower()) if match else None
    return None if match is None or unit is None else float(match[1]) * unit
