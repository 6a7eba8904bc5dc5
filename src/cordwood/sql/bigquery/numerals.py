"""The spellings of numbers that PARSE_NUMERIC accepts."""

from typing import Final

_NUMBER: Final = r"(,*\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?"

# Whitespace is allowed around the number and beside its sign, which may be trailing; commas before the point.
NUMERAL: Final = rf"\s*([+-]?\s*{_NUMBER}|{_NUMBER}\s*[+-])\s*"
