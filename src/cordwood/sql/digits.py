"""Integers of any length, without the error of Python's `int` for more than 4,300 digits."""

from typing import Final

# More digits than any engine's integers have, and fewer than Python refuses.
_MAX_DIGITS: Final = 100


def parse_digits(digits: str) -> int:
    """Return the number that decimal digits spell; for more than a hundred digits, the least number of that length."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
