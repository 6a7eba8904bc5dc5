"""Requests of Loki's read API: the caller, the sub-queries with their parameters, and the time range."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from cordwood.access import apply_pins, may_manage, require_query
from cordwood.errors import BadParameter
from cordwood.logql.labels import STREAM_PREFIX
from cordwood.logql.lexer import read_duration
from cordwood.logql.syntax import Comparison, Pipeline
from cordwood.model.endpoint import Dialect, Endpoint
from cordwood.model.key import Caller
from cordwood.model.stream import Stream
from cordwood.model.timestamps import EPOCH
from cordwood.web.asgi import Request
from cordwood.web.catalog_lookup import existing_endpoint
from cordwood.web.credentials import KeyPlaces, account_of, key_of_basic, presented
from cordwood.web.lifecycle import Services

_KEY_PLACES: Final = KeyPlaces(schemes={b"basic": key_of_basic})
# The endpoint that is read if the address names none.
_DEFAULT_ENDPOINT: Final = "logs.all"
_MAX_ROWS: Final = 1000

_STREAMS_ID: Final = UUID("0f7d8f0a-6c53-5c0e-9d53-5a3f1d7e6a10")

SECOND_US: Final = 1_000_000
_MICROSECOND_NS: Final = 1000
# A time with up to this many digits is in seconds, a longer one in nanoseconds.
_MAX_SECONDS_DIGITS: Final = 10
_INTEGER: Final = re.compile(r"\d{1,19}", re.ASCII)
_FRACTION: Final = re.compile(r"\d{1,12}\.\d{0,20}", re.ASCII)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{0,20})?", re.ASCII)
_MAX_STEP_SECONDS: Final = 100 * 365 * 86_400
# The number of steps in a range if the request has no `step`.
_DEFAULT_STEPS: Final = 250
_EXCERPT_LENGTH: Final = 60


class Reader(msgspec.Struct, frozen=True):
    """The caller, the endpoint that is read, and the account that is charged."""

    caller: Caller
    endpoint: Endpoint
    account: str

    def parameters(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        """Return the parameters of the endpoint: pins of the key, and values that were sent.

        A value may be sent as a parameter, or as a label that a selector compares with =.
        """
        if self.endpoint.id == _STREAMS_ID and "project" in texts:
            raise BadParameter("Streams have no parameter project.", hint='Write {project="…"} in the selector.')
        parameters = apply_pins(self.caller, self._sent_values(texts, queries), self.endpoint)
        for parameter in self.endpoint.parameters:
            if parameter.required and parameter.default is None and parameter.name not in parameters:
                raise BadParameter(
                    f"{self.endpoint.name} needs the parameter {parameter.name}.",
                    hint=f'Use a key that is pinned to one, or write {{{parameter.name}="…"}} in the selector.',
                )
        return parameters

    def _sent_values(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        declared = {parameter.name for parameter in self.endpoint.parameters}
        given = {name: texts[name] for name in declared if name in texts}
        for matcher in (matcher for query in queries for matcher in query.matchers):
            is_given = matcher.operator is Comparison.EQUAL and matcher.label in declared
            if is_given and given.setdefault(matcher.label, matcher.text) != matcher.text:
                raise BadParameter(f"{matcher.label} was sent with two values.", hint="Send one of them.")
        return given


def read_caller(request: Request, services: Services, query: Mapping[str, str], address: str) -> Reader:
    """Return the reader of a request, counted against the key's rate. `address` is the endpoint's name or empty."""
    key = presented(request, query, _KEY_PLACES)
    found = services.catalog.endpoint(address or _DEFAULT_ENDPOINT)
    caller = services.access.authenticate_for_endpoint(key, found, address)
    request.facts["key"] = caller.key_id
    if not address and may_manage(caller) and not caller.pins:
        endpoint = _endpoint_of_streams(services.catalog.streams())
    else:
        require_query(caller, found)
        endpoint = found or existing_endpoint(services, address or _DEFAULT_ENDPOINT)
    request.facts["endpoint"] = endpoint.name
    if not endpoint.sandbox:
        raise BadParameter(
            f"{endpoint.name} has no sandbox, and LogQL is a query of your own.",
            hint="Ask the owner to enable the sandbox.",
        )
    if endpoint.dialect is not Dialect.BIGQUERY:
        raise BadParameter(f"{endpoint.name} is asked in ClickHouse SQL, and not in LogQL.", hint="Ask logs.all.")
    account = account_of(request, caller)
    services.answers.admit(caller, account)
    return Reader(caller, endpoint, account)


def _endpoint_of_streams(streams: Iterable[Stream]) -> Endpoint:
    """Return a temporary endpoint that has a sub-query for each stream."""
    sub_queries = ",\n".join(_sub_query(stream.name) for stream in streams if "`" not in stream.name)
    sql = f"with {sub_queries}\nselect 1 as one"
    return Endpoint(
        name="streams",
        id=_STREAMS_ID,
        sql=sql,
        revision=f"streams/{sha256(sql.encode()).hexdigest()}",
        max_rows=_MAX_ROWS,
        sandbox=True,
    )


def _sub_query(name: str) -> str:
    columns = "t.id, t.timestamp, t.event_message, t.metadata, t.project"
    return f"`{STREAM_PREFIX}{name}` as (select {columns} from `{name}` as t)"  # noqa: S608 - a name of the catalog


class TimeRange(msgspec.Struct, frozen=True):
    """A time range in nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    @property
    def start_us(self) -> int:
        """The first microsecond at or after the start."""
        return -(-self.start_ns // _MICROSECOND_NS)

    @property
    def end_us(self) -> int:
        """The first microsecond at or after the end."""
        return -(-self.end_ns // _MICROSECOND_NS)


def read_range(texts: Mapping[str, str], now_us: int, default_seconds: int) -> TimeRange:
    """Return the range that `start`, `end` and `since` give; by default the last `default_seconds`."""
    now_ns = now_us * _MICROSECOND_NS
    end_ns = read_time("end", texts, now_ns)
    since_us = read_interval("since", texts, default_seconds * SECOND_US)
    start_ns = read_time("start", texts, min(end_ns, now_ns) - since_us * _MICROSECOND_NS)
    if end_ns < start_ns:
        raise BadParameter("end is before start.", hint="Send a later end.")
    return TimeRange(start_ns, end_ns)


def read_time(name: str, texts: Mapping[str, str], default_ns: int) -> int:
    """Parse a time to nanoseconds: a number of seconds or nanoseconds since 1970, or RFC 3339."""
    text = texts.get(name, "").strip()
    if not text:
        return default_ns
    if _INTEGER.fullmatch(text):
        return int(text) * (10**9 if len(text) <= _MAX_SECONDS_DIGITS else 1)
    if _FRACTION.fullmatch(text):
        seconds, _, fraction = text.partition(".")
        return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    match = _RFC3339.fullmatch(text)
    if match:
        try:
            time = datetime.fromisoformat(match[1].upper() + match[3].upper().replace("Z", "+00:00"))
        except ValueError:
            raise _bad_time_fault(name, text) from None
        passed = time - EPOCH
        return (passed.days * 86_400 + passed.seconds) * 10**9 + int((match[2] or "").ljust(9, "0"))
    raise _bad_time_fault(name, text)


def read_interval(name: str, texts: Mapping[str, str], default_us: int) -> int:
    """Parse a duration to microseconds: `5m`, or a number of seconds."""
    text = texts.get(name, "").strip()
    if not text:
        return default_us
    seconds = float(text) if _NUMBER.fullmatch(text) else read_duration(text) if len(text) <= _EXCERPT_LENGTH else None
    if seconds is None or not math.isfinite(seconds) or seconds > _MAX_STEP_SECONDS:
        raise BadParameter(
            f"{name} is {text[:_EXCERPT_LENGTH]!r}.", hint="Write it as in 30s or 5m, or as a number of seconds."
        )
    return round(seconds * SECOND_US)


def read_step(texts: Mapping[str, str], time_range: TimeRange) -> int:
    """Return the step of a range in microseconds. The default step divides the range into at most 250."""
    seconds = (time_range.end_ns - time_range.start_ns) // 10**9 // _DEFAULT_STEPS
    step_us = read_interval("step", texts, max(1, seconds) * SECOND_US)
    if step_us <= 0:
        raise BadParameter("step is 0.", hint="Write it as in 30s or 5m.")
    return step_us


def _bad_time_fault(name: str, text: str) -> BadParameter:
    return BadParameter(
        f"{name} is {text[:_EXCERPT_LENGTH]!r}.",
        hint="A time is a number of seconds or nanoseconds since 1970, or RFC 3339 as in 2026-01-31T12:00:00Z.",
    )
