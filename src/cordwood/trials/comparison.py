"""Compare an answer with the expected one."""

import difflib

import msgspec

from cordwood.trials.test_page import REFUSED, ROWS, Case, Fence, fenced

UNORDERED = "unordered"


class _Result(msgspec.Struct):
    result: list[msgspec.Raw]


class _Error(msgspec.Struct):
    status: str
    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None


class _Problem(msgspec.Struct):
    error: _Error


class Outcome(msgspec.Struct, frozen=True):
    """An answer in a page's notation: rows, or status, code and place with the message below."""

    kind: str
    lines: tuple[str, ...]

    def fence(self, expected: Fence | None) -> str:
        """Return the fence that expects this answer; of an error only the first line, since messages may change."""
        notes = expected.notes if expected and expected.kind == self.kind else ()
        return fenced(" ".join([self.kind, *notes]), "\n".join(self.lines[:1] if self.kind == REFUSED else self.lines))


def outcome_of(status: int, body: bytes) -> Outcome:
    if status == 200:
        rows = msgspec.json.decode(body, type=_Result).result
        return Outcome(ROWS, tuple(bytes(row).decode() for row in rows))
    error = msgspec.json.decode(body, type=_Problem).error
    place = "" if error.line is None else f" at {error.line}:{error.column}"
    hint = [error.hint] if error.hint else []
    return Outcome(REFUSED, (f"{status} {error.status}{place}", error.message, *hint))


def differences(case: Case, actual: Outcome) -> list[str]:
    """Return the differences as lines of text; an empty list if there are none."""
    expected = case.expected
    if expected is None:
        return ["The case has no expected answer; the answer was:", *_marked("+", actual.lines)]
    if expected.kind != actual.kind:
        wanted = expected.text.splitlines() or ["no rows"]
        return [*_marked("-", wanted), *_marked("+", actual.lines or ("no rows",))]
    return _of_rows(case, expected, actual) if actual.kind == ROWS else _of_refusal(expected, actual)


def _of_rows(case: Case, expected: Fence, actual: Outcome) -> list[str]:
    wanted = [_plain(line, case, expected) for line in expected.text.splitlines() if line.strip()]
    found = [_plain(line, case, expected) for line in actual.lines]
    if UNORDERED in expected.notes:
        wanted, found = sorted(wanted), sorted(found)
    return _compared(wanted, found)


def _of_refusal(expected: Fence, actual: Outcome) -> list[str]:
    """Compare a refusal. Status, code, place and message may each be left out."""
    wanted = expected.text.splitlines()
    found = list(actual.lines[: max(1, len(wanted))])
    if wanted and wanted[0].strip() in _heads(actual.lines[0]):
        wanted[0] = found[0]
    return _compared(wanted, found)


def _heads(head: str) -> set[str]:
    status, _, code_at = head.partition(" ")
    code = code_at.partition(" at ")[0]
    return {head, status, code, code_at, f"{status} {code}"}


def _plain(line: str, case: Case, fence: Fence) -> str:
    """Return a row in canonical JSON, independent of key order and white space."""
    try:
        return msgspec.json.encode(msgspec.json.decode(line), order="sorted").decode()
    except msgspec.DecodeError as problem:
        raise case.wrong(f"A row is not JSON: {problem}.", fence, "Write one a line, as an object.") from None


def _compared(wanted: list[str], found: list[str]) -> list[str]:
    if wanted == found:
        return []
    return [line.rstrip("\n") for line in difflib.ndiff(wanted, found)]


def _marked(mark: str, lines: tuple[str, ...] | list[str]) -> list[str]:
    return [f"{mark} {line}" for line in lines]
