"""A page of tests: each heading is a case, whose fences hold its inputs and the expected answer."""

import re
from collections.abc import Iterable

import msgspec

from cordwood.errors import BadTestPage, Span, did_you_mean

EVENTS, CLOCK, CALL, SQL, LQL = "events", "clock", "call", "sql", "lql"
ROWS, REFUSED = "rows", "refused"
GIVEN = (EVENTS, CLOCK, CALL, SQL, LQL)
EXPECTED = (ROWS, REFUSED)

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(\S*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^```", re.MULTILINE)


class Fence(msgspec.Struct, frozen=True):
    """A code fence; `notes` are the words after its kind, `start` and `end` its offsets in the page."""

    kind: str
    notes: tuple[str, ...]
    text: str
    line: int
    start: int
    end: int


class Case(msgspec.Struct, frozen=True):
    """A heading with its fences. Those before the first heading belong to every case."""

    file: str
    title: str
    line: int
    fences: tuple[Fence, ...]
    end: int

    def all(self, kind: str) -> list[Fence]:
        return [fence for fence in self.fences if fence.kind == kind]

    def one(self, kind: str) -> Fence | None:
        """Return the last fence of this kind, so that a case overrides the page."""
        found = self.all(kind)
        return found[-1] if found else None

    @property
    def expected(self) -> Fence | None:
        return next((fence for fence in self.fences if fence.kind in EXPECTED), None)

    def wrong(self, message: str, fence: Fence | None = None, hint: str | None = None) -> BadTestPage:
        return BadTestPage(message, hint=hint, span=Span(fence.line if fence else self.line, 1, self.file))


class Replacement(msgspec.Struct, frozen=True):
    """A replacement of a part of the page."""

    start: int
    end: int
    text: str


def read_cases(file: str, text: str) -> list[Case]:
    """Return the cases of a page; raise BadTestPage with the place of an error."""
    fences = [_fence(match, text, file) for match in _FENCE.finditer(text)]
    headings = [match for match in _HEADING.finditer(text) if not _stands_in(match.start(), fences)]
    if not headings:
        hint = "Begin each case with a line like: ## what must happen"
        raise BadTestPage("The page has no case.", hint=hint, span=Span(1, 1, file))
    _check_marks(file, text, fences)
    given = tuple(fence for fence in fences if fence.start < headings[0].start())
    _check_given(file, given)
    ends = [match.start() for match in headings[1:]] + [len(text)]
    return [_case(file, text, heading, end, (given, fences)) for heading, end in zip(headings, ends, strict=True)]


def rewritten(text: str, replacements: Iterable[Replacement]) -> str:
    """Apply the replacements, last first, so that offsets stay valid."""
    for one in sorted(replacements, key=lambda one: -one.start):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def fenced(head: str, text: str) -> str:
    return f"```{head}\n{text}\n```\n" if text else f"```{head}\n```\n"


def _case(
    file: str, text: str, heading: "re.Match[str]", end: int, known: tuple[tuple[Fence, ...], list[Fence]]
) -> Case:
    given, fences = known
    own = tuple(fence for fence in fences if heading.end() <= fence.start < end)
    body_end = len(text[:end].rstrip())
    case = Case(file, heading[1].strip(), _line(text, heading.start()), given + own, body_end)
    _check(case)
    return case


def _check(case: Case) -> None:
    expected = [fence for fence in case.fences if fence.kind in EXPECTED]
    if len(expected) > 1:
        raise case.wrong("A case has one expected answer, and this one has two.", expected[1])
    if case.one(SQL) and case.one(LQL):
        raise case.wrong("A call has sql or lql, not both.", case.one(LQL))


def _check_given(file: str, given: Iterable[Fence]) -> None:
    for fence in given:
        if fence.kind in EXPECTED:
            raise BadTestPage(
                "Expected answers belong to a case, not before the first one.", span=Span(fence.line, 1, file)
            )


def _check_marks(file: str, text: str, fences: Iterable[Fence]) -> None:
    """Raise BadTestPage for an unclosed fence, which the pattern would skip."""
    for mark in _MARK.finditer(text):
        if not _stands_in(mark.start(), fences):
            raise BadTestPage("This fence is not closed.", span=Span(_line(text, mark.start()), 1, file))


def _fence(match: "re.Match[str]", text: str, file: str) -> Fence:
    line = _line(text, match.start())
    kinds = (*GIVEN, *EXPECTED)
    if match[1] not in kinds:
        hint = did_you_mean(match[1], kinds) or f"There are: {', '.join(kinds)}."
        raise BadTestPage(f"A fence of the kind {match[1]!r} is unknown.", hint=hint, span=Span(line, 1, file))
    return Fence(match[1], tuple(match[2].split()), match[3].rstrip("\n"), line, match.start(), match.end())


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _stands_in(offset: int, fences: Iterable[Fence]) -> bool:
    return any(fence.start <= offset < fence.end for fence in fences)
