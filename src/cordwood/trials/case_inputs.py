"""The inputs of a test case: the time, the events of each stream, and the call."""

import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time

import msgspec

from cordwood.trials.test_page import CALL, CLOCK, EVENTS, LQL, SQL, Case, Fence

DEFAULT_CLOCK = "2024-01-01T00:00:00Z"
# The words after ```call.
REDACT_NOTES = {"redact": "true", "redact=true": "true", "redact=false": "false"}


class CaseData(msgspec.Struct, frozen=True):
    """The data of a test case. Cases with equal data share one engine."""

    now_us: int
    events: tuple[tuple[str, tuple[bytes, ...]], ...]


class Call(msgspec.Struct, frozen=True):
    """A request for the endpoint: `texts` are its parameters and the sandbox query."""

    texts: Mapping[str, str]
    redact: str | None = None


def case_data(case: Case) -> CaseData:
    return CaseData(_now_us(case), tuple((_stream(case, fence), _events(case, fence)) for fence in case.all(EVENTS)))


def call_of(case: Case) -> Call:
    call = case.last(CALL)
    texts = dict(_parameters(case, call)) if call else {}
    for kind in (SQL, LQL):
        query = case.last(kind)
        if query is not None:
            texts[kind] = query.text
    return Call(texts, _redact(case, call) if call else None)


def _now_us(case: Case) -> int:
    fence = case.last(CLOCK)
    text = fence.text.strip() if fence else DEFAULT_CLOCK
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise case.fault_at(f"{text!r} is no time.", fence, f"Write it as {DEFAULT_CLOCK}.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _stream(case: Case, fence: Fence) -> str:
    if len(fence.notes) != 1:
        raise case.fault_at("Events are for one stream.", fence, "Name it: ```events cloudflare.logs.prod")
    return fence.notes[0]


def _events(case: Case, fence: Fence) -> tuple[bytes, ...]:
    """Return the events, written one on each line or as a JSON list."""
    try:
        if fence.text.lstrip().startswith("["):
            return tuple(map(_compact, msgspec.json.decode(fence.text, type=list[object])))
        return tuple(_compact(msgspec.json.decode(line)) for line in fence.text.splitlines() if line.strip())
    except msgspec.DecodeError as problem:
        raise case.fault_at(f"The events are not JSON: {problem}.", fence, "Write one a line, or a list.") from None


def _compact(event: object) -> bytes:
    return msgspec.json.encode(event)


def _parameters(case: Case, call: Fence) -> Mapping[str, str]:
    try:
        tables = tomllib.loads(call.text)
    except tomllib.TOMLDecodeError as problem:
        raise case.fault_at(
            f"The call is not TOML: {problem}.", call, 'Write a parameter a line: name = "value"'
        ) from None
    return {name: _text(case, call, name, value) for name, value in tables.items()}


def _text(case: Case, call: Fence, name: str, value: object) -> str:
    """Return a value as a query string would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, str | int | float):
        return str(value)
    raise case.fault_at(f"The parameter {name} is a list or a table; it must be one value.", call)


def _redact(case: Case, call: Fence) -> str | None:
    for note in call.notes:
        if note not in REDACT_NOTES:
            raise case.fault_at(f"{note!r} is not an option of call.", call, "There is: redact, redact=false.")
    return REDACT_NOTES[call.notes[-1]] if call.notes else None
