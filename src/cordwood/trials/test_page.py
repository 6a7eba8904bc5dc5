"""Parse test pages into cases, and compare the expected answers of cases with the actual answers."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time

import msgspec

from cordwood.errors import BadTestPage, Span, did_you_mean
from cordwood.model.timestamps import parse_iso_time

EVENTS, CLOCK, CALL, SQL, LQL = "events", "clock", "call", "sql", "lql"
ROWS, REFUSED, ALERTS = "rows", "refused", "alerts"
INPUT_FENCE_KINDS = (EVENTS, CLOCK, CALL, SQL, LQL)
EXPECTED_FENCE_KINDS = (ROWS, REFUSED, ALERTS)

_CASE_HEADING_PATTERN = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCE_PATTERN = re.compile(r"^```(\S*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_FENCE_DELIMITER_PATTERN = re.compile(r"^```", re.MULTILINE)

DEFAULT_CLOCK = "2024-01-01T00:00:00Z"
# The options that may follow ```call, each with the value of the redaction header that it sets.
REDACT_HEADERS_BY_OPTION = {"redact": "true", "redact=true": "true", "redact=false": "false"}


class FencedBlock(msgspec.Struct, frozen=True):
    """A fenced code block of a page: ```, its kind and its options, and then its text.

    `start_offset` and `end_offset` are the offsets of the block in the page.
    """

    kind: str
    options: tuple[str, ...]
    text: str
    line: int
    start_offset: int
    end_offset: int


class EndpointTestCase(msgspec.Struct, frozen=True):
    """A test case: a heading and the fences that belong to it.

    Fences before the first heading of the page belong to every case.
    """

    file: str
    title: str
    line: int
    fences: tuple[FencedBlock, ...]
    end_offset: int

    def fences_of_kind(self, kind: str) -> list[FencedBlock]:
        return [fence for fence in self.fences if fence.kind == kind]

    def last_fence(self, kind: str) -> FencedBlock | None:
        """Return the last fence of this kind, or None.

        Fences that belong to every case come first, so a fence of the case itself overrides them.
        """
        fences = self.fences_of_kind(kind)
        return fences[-1] if fences else None

    @property
    def expected_fence(self) -> FencedBlock | None:
        return next((fence for fence in self.fences if fence.kind in EXPECTED_FENCE_KINDS), None)

    def fault_at(self, message: str, fence: FencedBlock | None = None, hint: str | None = None) -> BadTestPage:
        return BadTestPage(message, hint=hint, span=Span(fence.line if fence else self.line, 1, self.file))


class TextReplacement(msgspec.Struct, frozen=True):
    """A range of offsets in a page, and the text to put in its place."""

    start_offset: int
    end_offset: int
    text: str


def read_cases(file: str, text: str) -> list[EndpointTestCase]:
    """Parse the cases of a page; raise BadTestPage with the position of an error."""
    fences = [_read_fence(match, text, file) for match in _FENCE_PATTERN.finditer(text)]
    headings = [match for match in _CASE_HEADING_PATTERN.finditer(text) if not _is_inside_fence(match.start(), fences)]
    if not headings:
        hint = "Begin each case with a line like: ## what must happen"
        raise BadTestPage("The page has no case.", hint=hint, span=Span(1, 1, file))
    _check_fences_closed(file, text, fences)
    shared = tuple(fence for fence in fences if fence.start_offset < headings[0].start())
    _check_shared_fences(file, shared)
    ends = [match.start() for match in headings[1:]] + [len(text)]
    return [_read_case(file, text, heading, end, (shared, fences)) for heading, end in zip(headings, ends, strict=True)]


def apply_replacements(text: str, replacements: Iterable[TextReplacement]) -> str:
    """Return the text with all replacements made.

    The last range is replaced first, so that the offsets of the other ranges stay valid.
    """
    for replacement in sorted(replacements, key=lambda replacement: -replacement.start_offset):
        text = text[: replacement.start_offset] + replacement.text + text[replacement.end_offset :]
    return text


def format_fence(head: str, text: str) -> str:
    return f"```{head}\n{text}\n```\n" if text else f"```{head}\n```\n"


def _read_case(
    file: str,
    text: str,
    heading: "re.Match[str]",
    end: int,
    page_fences: tuple[tuple[FencedBlock, ...], list[FencedBlock]],
) -> EndpointTestCase:
    shared, fences = page_fences
    case_fences = tuple(fence for fence in fences if heading.end() <= fence.start_offset < end)
    body_end = len(text[:end].rstrip())
    case = EndpointTestCase(
        file, heading[1].strip(), _line_number(text, heading.start()), shared + case_fences, body_end
    )
    _check_case(case)
    return case


def _check_case(case: EndpointTestCase) -> None:
    expected = [fence for fence in case.fences if fence.kind in EXPECTED_FENCE_KINDS]
    if len(expected) > 1:
        raise case.fault_at("A case has one expected answer, and this one has two.", expected[1])
    if case.last_fence(SQL) and case.last_fence(LQL):
        raise case.fault_at("A call has sql or lql, not both.", case.last_fence(LQL))


def _check_shared_fences(file: str, shared: Iterable[FencedBlock]) -> None:
    for fence in shared:
        if fence.kind in EXPECTED_FENCE_KINDS:
            raise BadTestPage(
                "Expected answers belong to a case, not before the first one.", span=Span(fence.line, 1, file)
            )


def _check_fences_closed(file: str, text: str, fences: Iterable[FencedBlock]) -> None:
    """Raise BadTestPage if a fence is not closed. The regular expression for fences does not find such a fence."""
    for mark in _FENCE_DELIMITER_PATTERN.finditer(text):
        if not _is_inside_fence(mark.start(), fences):
            raise BadTestPage("This fence is not closed.", span=Span(_line_number(text, mark.start()), 1, file))


def _read_fence(match: "re.Match[str]", text: str, file: str) -> FencedBlock:
    line = _line_number(text, match.start())
    kinds = (*INPUT_FENCE_KINDS, *EXPECTED_FENCE_KINDS)
    if match[1] not in kinds:
        hint = did_you_mean(match[1], kinds) or f"There are: {', '.join(kinds)}."
        raise BadTestPage(f"A fence of the kind {match[1]!r} is unknown.", hint=hint, span=Span(line, 1, file))
    return FencedBlock(match[1], tuple(match[2].split()), match[3].rstrip("\n"), line, match.start(), match.end())


def _line_number(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _is_inside_fence(offset: int, fences: Iterable[FencedBlock]) -> bool:
    return any(fence.start_offset <= offset < fence.end_offset for fence in fences)


class CaseData(msgspec.Struct, frozen=True):
    """The data of a case: the current time, and the events by stream. Cases with equal data share an engine."""

    now_us: int
    events_by_stream: tuple[tuple[str, tuple[bytes, ...]], ...]


class CaseCall(msgspec.Struct, frozen=True):
    """A request to the endpoint. `parameter_texts` has its parameters and its sandbox query, by name."""

    parameter_texts: Mapping[str, str]
    redact_header: str | None = None


def case_data(case: EndpointTestCase) -> CaseData:
    return CaseData(
        _read_clock_us(case),
        tuple((_stream_name(case, fence), _read_events(case, fence)) for fence in case.fences_of_kind(EVENTS)),
    )


def case_call(case: EndpointTestCase) -> CaseCall:
    call = case.last_fence(CALL)
    texts = dict(_read_parameters(case, call)) if call else {}
    for kind in (SQL, LQL):
        query = case.last_fence(kind)
        if query is not None:
            texts[kind] = query.text
    return CaseCall(texts, _redact_header(case, call) if call else None)


def _read_clock_us(case: EndpointTestCase) -> int:
    fence = case.last_fence(CLOCK)
    text = fence.text.strip() if fence else DEFAULT_CLOCK
    try:
        moment = parse_iso_time(text)
    except ValueError:
        raise case.fault_at(f"{text!r} is not a time.", fence, f"Write it as {DEFAULT_CLOCK}.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _stream_name(case: EndpointTestCase, fence: FencedBlock) -> str:
    if len(fence.options) != 1:
        raise case.fault_at("Events are for one stream.", fence, "Name it: ```events cloudflare.logs.prod")
    return fence.options[0]


def _read_events(case: EndpointTestCase, fence: FencedBlock) -> tuple[bytes, ...]:
    """Return the events in a fence, which has either one event on each line or a JSON list of events."""
    try:
        if fence.text.lstrip().startswith("["):
            return tuple(map(_encode_compact_json, msgspec.json.decode(fence.text, type=list[object])))
        return tuple(
            _encode_compact_json(msgspec.json.decode(line)) for line in fence.text.splitlines() if line.strip()
        )
    except msgspec.DecodeError as problem:
        raise case.fault_at(f"The events are not JSON: {problem}.", fence, "Write one a line, or a list.") from None


def _encode_compact_json(event: object) -> bytes:
    return msgspec.json.encode(event)


def _read_parameters(case: EndpointTestCase, call: FencedBlock) -> Mapping[str, str]:
    try:
        tables = tomllib.loads(call.text)
    except tomllib.TOMLDecodeError as problem:
        raise case.fault_at(
            f"The call is not TOML: {problem}.", call, 'Write a parameter a line: name = "value"'
        ) from None
    return {name: _parameter_text(case, call, name, value) for name, value in tables.items()}


def _parameter_text(case: EndpointTestCase, call: FencedBlock, name: str, value: object) -> str:
    """Return a parameter's TOML value as the text that a query string would have for it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, str | int | float):
        return str(value)
    raise case.fault_at(f"The parameter {name} is a list or a table; it must be one value.", call)


def _redact_header(case: EndpointTestCase, call: FencedBlock) -> str | None:
    for note in call.options:
        if note not in REDACT_HEADERS_BY_OPTION:
            raise case.fault_at(f"{note!r} is not an option of call.", call, "There is: redact, redact=false.")
    return REDACT_HEADERS_BY_OPTION[call.options[-1]] if call.options else None


UNORDERED_OPTION = "unordered"


class _RowsBody(msgspec.Struct):
    result: list[msgspec.Raw]


class _PreviewBody(msgspec.Struct):
    firing: list[msgspec.Raw]


class _ErrorMembers(msgspec.Struct):
    status: str
    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorMembers


class CaseOutcome(msgspec.Struct, frozen=True):
    """The result of a case in the notation of test pages: rows, firing groups of an alert, or an error.

    An error has up to three lines: its status, code and position; its message; and its hint.
    """

    fence_kind: str
    lines: tuple[str, ...]

    def fence_text(self, expected: FencedBlock | None) -> str:
        """Return the text of the fence that expects this result.

        The fence for an error leaves out the message and the hint, because messages may change.
        """
        notes = expected.options if expected and expected.kind == self.fence_kind else ()
        return format_fence(
            " ".join([self.fence_kind, *notes]), "\n".join(self.lines[:1] if self.fence_kind == REFUSED else self.lines)
        )


def outcome_of_query(status: int, body: bytes) -> CaseOutcome:
    if status == 200:
        rows = msgspec.json.decode(body, type=_RowsBody).result
        return CaseOutcome(ROWS, tuple(bytes(row).decode() for row in rows))
    return _refused_outcome(status, body)


def outcome_of_alert(status: int, body: bytes) -> CaseOutcome:
    """Return the result of previewing an alert: its firing groups, or the error."""
    if status == 200:
        firing = msgspec.json.decode(body, type=_PreviewBody).firing
        return CaseOutcome(ALERTS, tuple(bytes(fired).decode() for fired in firing))
    return _refused_outcome(status, body)


def _refused_outcome(status: int, body: bytes) -> CaseOutcome:
    error = msgspec.json.decode(body, type=_ErrorBody).error
    position = "" if error.line is None else f" at {error.line}:{error.column}"
    hint = [error.hint] if error.hint else []
    return CaseOutcome(REFUSED, (f"{status} {error.status}{position}", error.message, *hint))


def compare_outcome(case: EndpointTestCase, actual: CaseOutcome) -> list[str]:
    """Return the lines of a diff between expected and actual answer, or an empty list if they are equal."""
    expected = case.expected_fence
    if expected is None:
        return ["The case has no expected answer; the answer was:", *_prefix_lines("+", actual.lines)]
    if expected.kind != actual.fence_kind:
        expected_lines = expected.text.splitlines() or [f"no {expected.kind}"]
        return [*_prefix_lines("-", expected_lines), *_prefix_lines("+", actual.lines or (f"no {actual.fence_kind}",))]
    return (
        _compare_refusals(expected, actual) if actual.fence_kind == REFUSED else _compare_rows(case, expected, actual)
    )


def _compare_rows(case: EndpointTestCase, expected: FencedBlock, actual: CaseOutcome) -> list[str]:
    expected_rows = [_canonical_row(line, case, expected) for line in expected.text.splitlines() if line.strip()]
    actual_rows = [_canonical_row(line, case, expected) for line in actual.lines]
    if UNORDERED_OPTION in expected.options:
        expected_rows, actual_rows = sorted(expected_rows), sorted(actual_rows)
    return _diff(expected_rows, actual_rows)


def _compare_refusals(expected: FencedBlock, actual: CaseOutcome) -> list[str]:
    """Return the differences between an expected and an actual error.

    The expected error needs only the status or the code. Its position, message and hint may be left out.
    """
    expected_lines = expected.text.splitlines()
    actual_lines = list(actual.lines[: max(1, len(expected_lines))])
    if expected_lines and expected_lines[0].strip() in _accepted_first_error_lines(actual.lines[0]):
        expected_lines[0] = actual_lines[0]
    return _diff(expected_lines, actual_lines)


def _accepted_first_error_lines(head: str) -> set[str]:
    status, _, code_at = head.partition(" ")
    code = code_at.partition(" at ")[0]
    return {head, status, code, code_at, f"{status} {code}"}


def _canonical_row(line: str, case: EndpointTestCase, fence: FencedBlock) -> str:
    """Return a row as JSON that does not depend on the order of keys or on white space."""
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
