"""A page of spec/ as cases: a heading is a case, its fences are what is given and what must follow."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```([a-z]+)((?: [^\n]*)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """`notes` are the words after the kind: `stream name=edge` has {"name": "edge"}, `rows unordered` {"unordered": ""}.

    `start` and `end` are offsets of the text in the page, so that it can be rewritten.
    """

    kind: str
    notes: Mapping[str, str]
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Case:
    """A heading with its fences; those that stand before the page's first heading are given to every case."""

    title: str
    line: int
    fences: tuple[Fence, ...] = field(default=())

    def all(self, kind: str) -> list[Fence]:
        return [fence for fence in self.fences if fence.kind == kind]

    def text(self, kind: str) -> str | None:
        """The one fence of this kind; the case's own comes after the page's, and wins."""
        found = self.all(kind)
        return found[-1].text if found else None


def read_cases(path: Path) -> Iterator[Case]:
    text = path.read_text()
    fences = [_fence(match) for match in FENCE.finditer(text)]
    inside = [(fence.start, fence.end) for fence in fences]
    headings = [match for match in HEADING.finditer(text) if not _stands_in(match.start(), inside)]
    first = headings[0].start() if headings else len(text)
    given = tuple(fence for fence in fences if fence.start < first)
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        end = following.start() if following else len(text)
        own = tuple(fence for fence in fences if heading.end() <= fence.start < end)
        yield Case(heading[1].strip(), text.count("\n", 0, heading.start()), given + own)


def rewrite(path: Path, replacements: Iterable[tuple[Fence, str]]) -> None:
    """Put new texts into fences, last first, so that offsets stay true."""
    text = path.read_text()
    for fence, replacement in sorted(replacements, key=lambda pair: -pair[0].start):
        text = text[: fence.start] + replacement + "\n" + text[fence.end :]
    path.write_text(text)


def _fence(match: re.Match[str]) -> Fence:
    words = (word.partition("=") for word in match[2].split())
    notes = {name: value for name, _, value in words}
    return Fence(match[1], notes, match[3].rstrip("\n"), match.start(3), match.end(3))


def _stands_in(offset: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= offset < end for start, end in spans)
