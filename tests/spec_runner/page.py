"""Parser for pages of spec/. Each heading is a case, whose fences are inputs and expected results."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```([a-z]+)((?: [^\n]*)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page.

    `options` are the words after the kind: for `stream name=edge`, they are {"name": "edge"}. `start` and `end` are
    offsets of the text in the page, so that the text can be replaced.
    """

    kind: str
    options: Mapping[str, str]
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Case:
    """A heading with its fences. The fences before the first heading of the page belong to every case."""

    title: str
    line: int
    fences: tuple[Fence, ...] = field(default=())

    def fences_of(self, kind: str) -> list[Fence]:
        return [fence for fence in self.fences if fence.kind == kind]

    def text(self, kind: str) -> str | None:
        """Return the text of the last fence of this kind, or None. A case thus overrides its page."""
        fences = self.fences_of(kind)
        return fences[-1].text if fences else None


def read_cases(path: Path) -> Iterator[Case]:
    text = path.read_text()
    fences = [_fence(match) for match in FENCE.finditer(text)]
    inside = [(fence.start, fence.end) for fence in fences]
    headings = [match for match in HEADING.finditer(text) if not _is_inside(match.start(), inside)]
    first = headings[0].start() if headings else len(text)
    page_fences = tuple(fence for fence in fences if fence.start < first)
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        end = following.start() if following else len(text)
        case_fences = tuple(fence for fence in fences if heading.end() <= fence.start < end)
        yield Case(heading[1].strip(), text.count("\n", 0, heading.start()), page_fences + case_fences)


def rewrite(path: Path, replacements: Iterable[tuple[Fence, str]]) -> None:
    """Replace the texts of fences. The last fence is replaced first, so that the offsets of the others stay valid."""
    text = path.read_text()
    for fence, replacement in sorted(replacements, key=lambda pair: -pair[0].start):
        text = text[: fence.start] + replacement + "\n" + text[fence.end :]
    path.write_text(text)


def _fence(match: re.Match[str]) -> Fence:
    words = (word.partition("=") for word in match[2].split())
    options = {name: value for name, _, value in words}
    return Fence(match[1], options, match[3].rstrip("\n"), match.start(3), match.end(3))


def _is_inside(offset: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= offset < end for start, end in spans)
