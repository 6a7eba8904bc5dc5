"""Whole numbers of any number of digits: Python refuses to read more than 4,300."""

from typing import Final

# More than any engine holds, and fewer than Python refuses.
_MOST_DIGITS: Final = 100


def whole(digits: str) -> int:
    """The number that decimal digits spell; of more than a hundred, the least number that has so many."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
