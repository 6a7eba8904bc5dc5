"""Sizes, durations and rates with units: 512MB, 1h30m, 10/s."""

import re

_BYTES_BY_UNIT = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SECONDS_BY_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

_SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_DURATION_PART_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)")
_DURATION_PATTERN = re.compile(rf"(?:{_DURATION_PART_PATTERN.pattern}\s*)+")
# Rates above MAX_RATE_PER_SECOND or below MIN_RATE_PER_SECOND are refused, because they are probably mistakes and their
# reciprocals might not be finite.
MAX_RATE_PER_SECOND = 1e12
MIN_RATE_PER_SECOND = 1e-9
_RATE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|m|h)")


def parse_size(text: str) -> int:
    """Convert a text such as 512MB to bytes; raise ValueError with a message if it is not a size."""
    found = _SIZE_PATTERN.fullmatch(text.strip().lower())
    if found is None or found[2] not in _BYTES_BY_UNIT:
        raise ValueError(f"{text!r} is not a size: write it like 512MB, 1.5GiB or 65536")
    return round(float(found[1]) * _BYTES_BY_UNIT[found[2]])


def parse_duration(text: str) -> float:
    """Convert a text such as 1h30m to seconds; raise ValueError with a message if it is not a duration."""
    cleaned = text.strip().lower()
    if cleaned == "0":
        return 0.0
    if _DURATION_PATTERN.fullmatch(cleaned) is None:
        raise ValueError(f"{text!r} is not a duration: add a unit, like 30s, 15m, 1h30m or 90d")
    return sum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in _DURATION_PART_PATTERN.findall(cleaned))


def parse_rate(text: str) -> float:
    """Convert a text such as 600/m to a number per second; raise ValueError with a message if it is not a rate."""
    found = _RATE_PATTERN.fullmatch(text.strip().lower())
    per_second = 0.0 if found is None else float(found[1]) / _SECONDS_BY_UNIT[found[2]]
    if not MIN_RATE_PER_SECOND <= per_second <= MAX_RATE_PER_SECOND:
        raise ValueError(f"{text!r} is not a rate: write it like 10/s, 600/m or 5000/h")
    return per_second


def format_size(size: int) -> str:
    """Format a size in the unit in which it is the smallest whole number, such as 1GiB for 1,073,741,824 bytes."""
    exact = [(size // factor, unit) for unit, factor in _BYTES_BY_UNIT.items() if unit and size and size % factor == 0]
    number, unit = min(exact, key=lambda pair: pair[0], default=(size, "b"))
    return f"{number}{_SIZE_UNIT_NAMES[unit]}"


_SIZE_UNIT_NAMES = {unit: unit.upper().replace("IB", "iB") for unit in _BYTES_BY_UNIT}


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit in which it is a whole number, such as 90m for 5,400 seconds."""
    for unit in ("w", "d", "h", "m", "s"):
        if seconds and seconds % _SECONDS_BY_UNIT[unit] == 0:
            return f"{int(seconds / _SECONDS_BY_UNIT[unit])}{unit}"
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def format_rate(per_second: float) -> str:
    """Format a rate per second, minute or hour: the first of these in which it is a whole number."""
    for unit in ("s", "m", "h"):
        number = per_second * _SECONDS_BY_UNIT[unit]
        if abs(number - round(number)) < 1e-9:
            return f"{round(number)}/{unit}"
    return f"{per_second:g}/s"
