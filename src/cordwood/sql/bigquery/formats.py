"""What stands in a format of FORMAT(): plain text, and specifiers with their flags, widths and precisions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SPECIFIER: Final = re.compile(r"%([-+ #0']*)(\d+|\*)?(?:\.(\d+|\*)?)?([a-zA-Z%])|%|([^%]+)")
_HAS_PRECISION: Final = re.compile(r"%[-+ #0']*(?:\d+|\*)?\.")

# Characters: a field of more is refused.
WIDEST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Specifier:
    """`%-8.3f`: a star for a width or a precision stands for an argument."""

    flags: str
    width: str | None
    precision: str | None
    letter: str

    @property
    def stars(self) -> int:
        return (self.width, self.precision).count("*")

    @property
    def is_too_wide(self) -> bool:
        return any(part and part.isdigit() and int(part) > WIDEST for part in (self.width, self.precision))

    def text(self, letter: str) -> str:
        """As printf has it."""
        return f"%{self.flags.replace(chr(39), '')}{self.width or ''}{self._cut}{letter}"

    @property
    def bare(self) -> str:
        """As printf has it, for a field that is as wide as what it holds."""
        return Specifier(self.flags.replace("-", "").replace("0", ""), None, None, self.letter).text(self.letter)

    @property
    def unfilled(self) -> str:
        """As printf has it, with no zeros before the number."""
        return Specifier(self.flags.replace("0", ""), self.width, self.precision, self.letter).text(self.letter)

    @property
    def fraction(self) -> str:
        """As printf has it, with nothing before or after the number."""
        return f"%{self._cut}{self.letter}"

    @property
    def padding(self) -> str | None:
        """As printf has it for what is a text already; None where that stays as it is."""
        cut = self._cut if self.letter in "stTpP" else ""
        if self.width is None and not cut:
            return None
        return f"%{'-' if '-' in self.flags else ''}{self.width or ''}{cut}s"

    @property
    def plus(self) -> str:
        """What stands before a number that is not negative."""
        return "+" if "+" in self.flags else " " if " " in self.flags else ""

    @property
    def zeros(self) -> int | None:
        """How many characters zeros fill; None where they fill none."""
        if "0" not in self.flags or "-" in self.flags:
            return None
        return int(self.width) if self.width and self.width.isdigit() else 0

    @property
    def _cut(self) -> str:
        return f".{self.precision}" if self.precision is not None else ""


def pieces(shape: str) -> Iterator[str | Specifier | None]:
    """None for what is no specifier."""
    for match in _SPECIFIER.finditer(shape):
        if match[5] is not None:
            yield match[5]
        elif match[4] == "%":
            yield "%"
        elif match[4] is None:
            yield None
        else:
            precision = match[3] if match[3] is not None else ("0" if _HAS_PRECISION.match(match[0]) else None)
            yield Specifier(match[1], match[2], precision, match[4])
