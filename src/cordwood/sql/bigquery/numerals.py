"""How PARSE_NUMERIC lets a number be spelled."""

from typing import Final

_NUMBER: Final = r"(,*\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?"

# Blanks around it and beside its sign, which may stand behind; commas before the point.
NUMERAL: Final = rf"\s*([+-]?\s*{_NUMBER}|{_NUMBER}\s*[+-])\s*"
