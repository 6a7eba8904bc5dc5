"""Compare the actual answer of a test case with the expected one."""

import difflib

import msgspec

from cordwood.trials.test_page import ALERTS, REFUSED, ROWS, Case, Fence, fenced

UNORDERED = "unordered"


class _Result(msgspec.Struct):
    result: list[msgspec.Raw]


class _Preview(msgspec.Struct):
    firing: list[msgspec.Raw]


class _Error(msgspec.Struct):
    status: str
    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None


class _Problem(msgspec.Struct):
    error: _Error


class Outcome(msgspec.Struct, frozen=True):
    """An answer in the notation of test pages: rows, or the head of a refusal with its message below."""

    kind: str
    lines: tuple[str, ...]

    def fence(self, expected: Fence | None) -> str:
        """Return the fence that expects this answer; for an error without the message, since messages may change."""
        notes = expected.notes if expected and expected.kind == self.kind else ()
        return fenced(" ".join([self.kind, *notes]), "\n".join(self.lines[:1] if self.kind == REFUSED else self.lines))


def outcome_of(status: int, body: bytes) -> Outcome:
    if status == 200:
        rows = msgspec.json.decode(body, type=_Result).result
        return Outcome(ROWS, tuple(bytes(row).decode() for row in rows))
    return _refusal(status, body)


def outcome_of_alert(status: int, body: bytes) -> Outcome:
    """Return the firing groups in the preview of an alert."""
    if status == 200:
        firing = msgspec.json.decode(body, type=_Preview).firing
        return Outcome(ALERTS, tuple(bytes(fired).decode() for fired in firing))
    return _refusal(status, body)


def _refusal(status: int, body: bytes) -> Outcome:
    error = msgspec.json.decode(body, type=_Problem).error
    position = "" if error.line is None else f" at {error.line}:{error.column}"
    hint = [error.hint] if error.hint else []
    return Outcome(REFUSED, (f"{status} {error.status}{position}", error.message, *hint))


def differences(case: Case, actual: Outcome) -> list[str]:
    """Return the differences between expected and actual answer as lines of text; empty if there are none."""
    expected = case.expected
    if expected is None:
        return ["The case has no expected answer; the answer was:", *_prefix_lines("+", actual.lines)]
    if expected.kind != actual.kind:
        expected_lines = expected.text.splitlines() or [f"no {expected.kind}"]
        return [*_prefix_lines("-", expected_lines), *_prefix_lines("+", actual.lines or (f"no {actual.kind}",))]
    return _compare_refusals(expected, actual) if actual.kind == REFUSED else _compare_rows(case, expected, actual)


def _compare_rows(case: Case, expected: Fence, actual: Outcome) -> list[str]:
    expected_rows = [_canonical_row(line, case, expected) for line in expected.text.splitlines() if line.strip()]
    actual_rows = [_canonical_row(line, case, expected) for line in actual.lines]
    if UNORDERED in expected.notes:
        expected_rows, actual_rows = sorted(expected_rows), sorted(actual_rows)
    return _diff(expected_rows, actual_rows)


def _compare_refusals(expected: Fence, actual: Outcome) -> list[str]:
    """Compare two refusals. The expected one may leave out status, code, position and message."""
    expected_lines = expected.text.splitlines()
    actual_lines = list(actual.lines[: max(1, len(expected_lines))])
    if expected_lines and expected_lines[0].strip() in _possible_heads(actual.lines[0]):
        expected_lines[0] = actual_lines[0]
    return _diff(expected_lines, actual_lines)


def _possible_heads(head: str) -> set[str]:
    status, _, code_at = head.partition(" ")
    code = code_at.partition(" at ")[0]
    return {head, status, code, code_at, f"{status} {code}"}


def _canonical_row(line: str, case: Case, fence: Fence) -> str:
    """Return a row in canonical JSON, independent of key order and white space."""
    try:
        return msgspec.json.encode(msgspec.json.decode(line), order="sorted").decode()
    except msgspec.DecodeError as problem:
        raise case.fault_at(f"A row is not JSON: {problem}.", fence, "Write one a line, as an object.") from None


def _diff(expected_lines: list[str], actual_lines: list[str]) -> list[str]:
    if expected_lines == actual_lines:
        return []
    return [line.rstrip("\n") for line in difflib.ndiff(expected_lines, actual_lines)]


def _prefix_lines(prefix: str, lines: tuple[str, ...] | list[str]) -> list[str]:
    return [f"{prefix} {line}" for line in lines]
