"""Loki's read API: the routes and their handlers, which identify the caller and parse parameters and time ranges."""

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from cordwood.access import apply_pinned_parameters, may_manage_service, require_query_permission
from cordwood.errors import BadParameter, Fault, FeatureUnavailable, PathNotFound, UnsupportedMediaType
from cordwood.logql.labels import WHOLE_STREAM_PREFIX, final_pipeline_state, stream_label_names
from cordwood.logql.lexer import read_duration_seconds
from cordwood.logql.metrics import fold_constant, is_constant_vector
from cordwood.logql.parse import parse_log_query, parse_logql
from cordwood.logql.syntax import (
    ComparisonOperator,
    LogqlRequest,
    MetricQuery,
    Pipeline,
    ResultKind,
    VectorAggregate,
    check_step_count,
    pipelines_of,
)
from cordwood.model.datatype import Rows
from cordwood.model.definitions import Dialect, Endpoint, Stream
from cordwood.model.json_checks import FORM_MEDIA_TYPE
from cordwood.model.key import Caller
from cordwood.model.timestamps import EPOCH, now_us
from cordwood.serve.query_request import AnswerFormat, QueryLanguage, QueryRequest, SandboxQuery
from cordwood.web import loki_answers
from cordwood.web.answer_rendering import render_answer
from cordwood.web.asgi import (
    JSON_MEDIA_TYPE,
    NO_STORE_HEADER,
    Request,
    Response,
    iterate_urlencoded,
    parse_urlencoded,
    percent_decode,
)
from cordwood.web.credentials import (
    KeyPlaces,
    account_of_caller,
    account_of_key,
    key_of_basic_credentials,
    presented_key,
)
from cordwood.web.loki_answers import SeriesOrder
from cordwood.web.problems import CHALLENGE_HEADER, retry_after_headers, status_of
from cordwood.web.query_request_parser import read_redact_header
from cordwood.web.request_body import read_body, run_while_connected
from cordwood.web.route import HandlerContext, Route
from cordwood.web.services import Services, WebOptions, require_endpoint

_KEY_PLACES: Final = KeyPlaces(key_extractors_by_scheme={b"basic": key_of_basic_credentials})
# The endpoint that is read if the path of the request names none.
_DEFAULT_ENDPOINT: Final = "logs.all"
_STREAMS_ENDPOINT_MAX_ROWS: Final = 1000

_STREAMS_ENDPOINT_ID: Final = UUID("0f7d8f0a-6c53-5c0e-9d53-5a3f1d7e6a10")

_MICROSECONDS_PER_SECOND: Final = 1_000_000
_NANOSECONDS_PER_MICROSECOND: Final = 1000
# If a time is a number of at most this many digits, it is in seconds. A longer number is in nanoseconds.
_MAX_UNIX_SECONDS_DIGITS: Final = 10
_UNIX_TIME_INTEGER_REGEX: Final = re.compile(r"\d{1,19}", re.ASCII)
_DECIMAL_SECONDS_REGEX: Final = re.compile(r"\d{1,12}\.\d{0,20}", re.ASCII)
_RFC3339_REGEX: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_DURATION_SECONDS_REGEX: Final = re.compile(r"\d{1,12}(?:\.\d{0,20})?", re.ASCII)
_MAX_STEP_SECONDS: Final = 100 * 365 * 86_400
# If a request has no `step`, its time range is divided into about this many steps, or fewer if it is short.
_DEFAULT_STEP_COUNT: Final = 250
_MAX_DURATION_CHARACTERS: Final = 60


class _ReadAccess(msgspec.Struct, frozen=True):
    """What a request may read: the caller, the endpoint whose rows are read, and the account that is charged."""

    caller: Caller
    endpoint: Endpoint
    account: str

    def endpoint_parameters(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        """Return the values of the endpoint's parameters: pins of the key, and values in the request.

        A request contains a value as one of its parameters, or as a label that a selector compares with `=`.
        """
        if self.endpoint.id == _STREAMS_ENDPOINT_ID and "project" in texts:
            raise BadParameter("Streams have no parameter project.", hint='Write {project="…"} in the selector.')
        parameters = apply_pinned_parameters(self.caller, self._sent_parameter_values(texts, queries), self.endpoint)
        for parameter in self.endpoint.parameters:
            if parameter.required and parameter.default is None and parameter.name not in parameters:
                raise BadParameter(
                    f"{self.endpoint.name} needs the parameter {parameter.name}.",
                    hint=f'Use a key that is pinned to one, or write {{{parameter.name}="…"}} in the selector.',
                )
        return parameters

    def _sent_parameter_values(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        declared = {parameter.name for parameter in self.endpoint.parameters}
        given = {name: texts[name] for name in declared if name in texts}
        for matcher in (matcher for query in queries for matcher in query.matchers):
            is_given = matcher.operator is ComparisonOperator.EQUAL and matcher.label in declared
            if is_given and given.setdefault(matcher.label, matcher.text) != matcher.text:
                raise BadParameter(f"{matcher.label} was sent with two values.", hint="Send one of them.")
        return given


def _authorize_read(request: Request, services: Services, query: Mapping[str, str], address: str) -> _ReadAccess:
    """Identify the caller, find the endpoint, and count the request against the key's rate.

    `address` is the endpoint's name. If it is empty, a private key without pins gets an endpoint that contains all
    streams, and other keys get `logs.all`.
    """
    key = presented_key(request, query, _KEY_PLACES)
    found = services.catalog.endpoint(address or _DEFAULT_ENDPOINT)
    caller = services.authenticator.authenticate_for_endpoint(key, found, address)
    request.log_fields["key"] = caller.key_id
    if not address and may_manage_service(caller) and not caller.pins:
        endpoint = _endpoint_of_streams(services.catalog.streams())
    else:
        require_query_permission(caller, found)
        endpoint = found or require_endpoint(services, address or _DEFAULT_ENDPOINT)
    request.log_fields["endpoint"] = endpoint.name
    if not endpoint.accepts_sandbox_queries:
        raise BadParameter(
            f"{endpoint.name} has no sandbox, and LogQL is a query of your own.",
            hint="Ask the owner to enable the sandbox.",
        )
    if endpoint.dialect is not Dialect.BIGQUERY:
        raise BadParameter(f"{endpoint.name} accepts ClickHouse SQL, not LogQL.", hint="Query logs.all.")
    account = account_of_caller(request, caller)
    services.query_service.charge_request(caller, account)
    return _ReadAccess(caller, endpoint, account)


def _endpoint_of_streams(streams: Iterable[Stream]) -> Endpoint:
    """Return an endpoint that exists only for this request. It has a sub-query for each stream."""
    sub_queries = ",\n".join(_sub_query_sql(stream.name) for stream in streams if "`" not in stream.name)
    sql = f"with {sub_queries}\nselect 1 as one"
    return Endpoint(
        name="streams",
        id=_STREAMS_ENDPOINT_ID,
        sql=sql,
        revision=f"streams/{sha256(sql.encode()).hexdigest()}",
        max_rows=_STREAMS_ENDPOINT_MAX_ROWS,
        accepts_sandbox_queries=True,
    )


def _sub_query_sql(name: str) -> str:
    columns = "t.id, t.timestamp, t.event_message, t.metadata, t.project"
    return f"`{WHOLE_STREAM_PREFIX}{name}` as (select {columns} from `{name}` as t)"  # noqa: S608 - a name of the catalog


class _TimeRange(msgspec.Struct, frozen=True):
    """A time range in nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    @property
    def start_us(self) -> int:
        """The first whole microsecond at or after the start."""
        return -(-self.start_ns // _NANOSECONDS_PER_MICROSECOND)

    @property
    def end_us(self) -> int:
        """The first whole microsecond at or after the end."""
        return -(-self.end_ns // _NANOSECONDS_PER_MICROSECOND)


def _read_time_range(texts: Mapping[str, str], now_us: int, default_seconds: int) -> _TimeRange:
    """Return the time range in the parameters `start`, `end` and `since`; by default the last `default_seconds`."""
    now_ns = now_us * _NANOSECONDS_PER_MICROSECOND
    end_ns = _read_time("end", texts, now_ns)
    since_us = _parse_duration_us("since", texts, default_seconds * _MICROSECONDS_PER_SECOND)
    start_ns = _read_time("start", texts, min(end_ns, now_ns) - since_us * _NANOSECONDS_PER_MICROSECOND)
    if end_ns < start_ns:
        raise BadParameter("end is before start.", hint="Send a later end.")
    return _TimeRange(start_ns, end_ns)


def _read_time(name: str, texts: Mapping[str, str], default_ns: int) -> int:
    """Parse a time to nanoseconds since 1970. It may be a number of seconds or nanoseconds, or a text in RFC 3339."""
    text = texts.get(name, "").strip()
    if not text:
        return default_ns
    if _UNIX_TIME_INTEGER_REGEX.fullmatch(text):
        return int(text) * (10**9 if len(text) <= _MAX_UNIX_SECONDS_DIGITS else 1)
    if _DECIMAL_SECONDS_REGEX.fullmatch(text):
        seconds, _, fraction = text.partition(".")
        return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    match = _RFC3339_REGEX.fullmatch(text)
    if match:
        try:
            time = datetime.fromisoformat(match[1].upper() + match[3].upper().replace("Z", "+00:00"))
        except ValueError:
            raise _bad_time_fault(name, text) from None
        passed = time - EPOCH
        return (passed.days * 86_400 + passed.seconds) * 10**9 + int((match[2] or "").ljust(9, "0"))
    raise _bad_time_fault(name, text)


def _parse_duration_us(name: str, texts: Mapping[str, str], default_us: int) -> int:
    """Parse a duration, such as `5m` or a number of seconds, to microseconds."""
    text = texts.get(name, "").strip()
    if not text:
        return default_us
    seconds = (
        float(text)
        if _DURATION_SECONDS_REGEX.fullmatch(text)
        else read_duration_seconds(text)
        if len(text) <= _MAX_DURATION_CHARACTERS
        else None
    )
    if seconds is None or not math.isfinite(seconds) or seconds > _MAX_STEP_SECONDS:
        raise BadParameter(
            f"{name} is {text[:_MAX_DURATION_CHARACTERS]!r}.",
            hint="Write it as in 30s or 5m, or as a number of seconds.",
        )
    return round(seconds * _MICROSECONDS_PER_SECOND)


def _read_step(texts: Mapping[str, str], time_range: _TimeRange) -> int:
    """Return the step in microseconds: the parameter `step`, or a default that depends on the time range.

    The default is the range divided by `_DEFAULT_STEP_COUNT`, rounded down to whole seconds, but at least one second.
    """
    seconds = (time_range.end_ns - time_range.start_ns) // 10**9 // _DEFAULT_STEP_COUNT
    step_us = _parse_duration_us("step", texts, max(1, seconds) * _MICROSECONDS_PER_SECOND)
    if step_us <= 0:
        raise BadParameter("step is 0.", hint="Write it as in 30s or 5m.")
    return step_us


def _bad_time_fault(name: str, text: str) -> BadParameter:
    return BadParameter(
        f"{name} is {text[:_MAX_DURATION_CHARACTERS]!r}.",
        hint="A time is a number of seconds or nanoseconds since 1970, or RFC 3339 as in 2026-01-31T12:00:00Z.",
    )


_API_PATH_PREFIX: Final = "/loki/api/v1/"

_PLAIN_TEXT_HEADER: Final = (b"content-type", b"text/plain; charset=utf-8")
_JSON_MEDIA_TYPE: Final = JSON_MEDIA_TYPE.decode()
# Errors with these statuses are sent with status 400, because Loki's clients show such errors as errors in the query.
_STATUSES_SENT_AS_400: Final = frozenset({406, 413, 415, 422})

_HOUR_SECONDS: Final = 3600
# The default time range of requests for labels, label values and streams.
_DEFAULT_LABELS_RANGE_SECONDS: Final = 6 * _HOUR_SECONDS
_DEFAULT_RESULT_LIMIT: Final = 100
_MAX_RESULT_LIMIT: Final = 5000
_MAX_LABEL_VALUES: Final = 1000
_DEFAULT_LINE_LIMIT: Final = 100
_MAX_MATCH_SELECTORS: Final = 10
_LABEL_NAME_REGEX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_CATEGORIZE_LABELS_FLAG: Final = "categorize-labels"
# For each outermost function of an instant query that orders the result: the order of the series.
_ORDERS_BY_FUNCTION: Final[Mapping[str, SeriesOrder]] = {
    "sort": SeriesOrder.ASCENDING,
    "sort_desc": SeriesOrder.DESCENDING,
    "topk": SeriesOrder.DESCENDING,
    "bottomk": SeriesOrder.ASCENDING,
}
_HINTS_BY_UNSUPPORTED_PATH: Final[Mapping[str, str]] = {
    "tail": "Ask for query_range again, from the time of the last entry on.",
    "patterns": "Count lines by a label instead.",
    "format_query": "Format the query in the editor.",
}


class _LokiRequest(msgspec.Struct, frozen=True):
    """A request to Loki's read API with its parameters. `selectors` has the values of the parameter `match[]`."""

    request: Request
    services: Services
    access: _ReadAccess
    parameters: Mapping[str, str]
    selectors: tuple[str, ...]
    now_us: int
    began_at: float

    @property
    def logql_query(self) -> str:
        text = self.parameters.get("query", "")
        if not text.strip():
            raise BadParameter("The parameter query is missing.", hint='Send LogQL, as in {service_name="my.app"}.')
        return text

    def read_limit(self, name: str, default: int, maximum: int) -> int:
        text = self.parameters.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or len(text) > len(str(maximum)) or not 1 <= int(text) <= maximum:
            raise BadParameter(f"{name} is {text[:40]!r}.", hint=f"It must be a number from 1 to {maximum}.")
        return int(text)

    def read_time_range(self, default_seconds: int) -> _TimeRange:
        return _read_time_range(self.parameters, self.now_us, default_seconds)


def render_error(fault: Fault, _: Request) -> Response:
    """Render an error as plain text, as Loki does."""
    status = status_of(fault)
    status = 400 if status in _STATUSES_SENT_AS_400 else status
    headers = [_PLAIN_TEXT_HEADER, NO_STORE_HEADER, *retry_after_headers(fault, status)]
    if status == 401:
        headers.append(CHALLENGE_HEADER)
    return Response(status, headers, fault.one_line_text().encode())


async def _answer_without_endpoint(context: HandlerContext) -> Response:
    """Answer a request to `/loki/api/v1/…`, which names no endpoint.

    A private key without pins reads all streams. Other keys read the endpoint `logs.all`.
    """
    path = percent_decode(context.request.path, "path").rstrip("/")
    return await _answer_path(context, "", path.removeprefix(_API_PATH_PREFIX))


async def _answer_for_endpoint(context: HandlerContext) -> Response:
    """Answer a request to `/api/endpoints/NAME/loki/api/v1/…` with rows of the endpoint NAME."""
    endpoint, _, path = context.path_argument.partition(_API_PATH_PREFIX)
    return await _answer_path(context, endpoint, path)


async def _answer_path(context: HandlerContext, endpoint: str, path: str) -> Response:
    began = time.perf_counter()
    request, services = context.request, context.services()
    query = parse_urlencoded(request.query_string, "query string")
    reader = _authorize_read(request, services, query, endpoint)
    sent = [
        *iterate_urlencoded(request.query_string, "query string"),
        *await _form_parameters(request, context.dependencies.options),
    ]
    matches = tuple(text for name, text in sent if name in ("match[]", "match"))
    loki = _LokiRequest(request, services, reader, dict(sent), matches, now_us(), began)
    values = _VALUES_PATH_REGEX.fullmatch(path)
    if values is not None:
        return await _VALUES_HANDLERS_BY_PATH[values[1]](loki, _check_label_name(values[2]))
    if path in _HINTS_BY_UNSUPPORTED_PATH:
        raise FeatureUnavailable(f"{path} is not offered.", hint=_HINTS_BY_UNSUPPORTED_PATH[path])
    handler = _HANDLERS_BY_PATH.get(path)
    if handler is None:
        raise PathNotFound(
            f"Loki's read API has no {path[:60]} here.", hint=f"There are: {', '.join(_HANDLERS_BY_PATH)}."
        )
    return await handler(loki)


async def _form_parameters(request: Request, options: WebOptions) -> list[tuple[str, str]]:
    if request.method != "POST" or not request.has_body():
        return []
    if request.media_type() not in ("", FORM_MEDIA_TYPE):
        raise UnsupportedMediaType("The parameters are not a form.", hint=f"Send {FORM_MEDIA_TYPE}.")
    with options.query_body_budget.open_reservation(
        account_of_key(request, request.log_fields.get("key", ""))
    ) as reservation:
        return list(iterate_urlencoded(await read_body(request, options.query_body_bounds, reservation), "form"))


async def _answer_range_query(loki: _LokiRequest) -> Response:
    time_range = loki.read_time_range(_HOUR_SECONDS)
    query = parse_logql(loki.logql_query)
    if isinstance(query, Pipeline):
        return await _answer_log_lines(loki, query, time_range)
    step_us = _read_step(loki.parameters, time_range)
    return await _answer_samples(loki, query, _samples_request(loki.logql_query, time_range, step_us), is_instant=False)


async def _answer_instant_query(loki: _LokiRequest) -> Response:
    query = parse_logql(loki.logql_query)
    if isinstance(query, Pipeline):
        raise BadParameter(
            "Log queries are not supported as instant queries.", hint="Ask for query_range, or count the lines."
        )
    time_ns = _read_time("time", loki.parameters, loki.now_us * 1000)
    at = _TimeRange(time_ns, time_ns)
    return await _answer_samples(
        loki, query, _samples_request(loki.logql_query, at, _MICROSECONDS_PER_SECOND), is_instant=True
    )


def _samples_request(text: str, time_range: _TimeRange, step_us: int) -> LogqlRequest:
    start_us = time_range.start_us
    end_us = max(start_us, time_range.end_ns // 1000)
    request = LogqlRequest(ResultKind.SAMPLES, (text,), start_us, end_us, step_us)
    check_step_count(request.sample_steps)
    return request


async def _answer_log_lines(loki: _LokiRequest, query: Pipeline, time_range: _TimeRange) -> Response:
    if _parse_duration_us("interval", loki.parameters, 0):
        raise BadParameter("interval is not supported.", hint="Leave it out, and send a smaller limit.")
    direction = loki.parameters.get("direction", "").lower() or "backward"
    if direction not in ("forward", "backward"):
        raise BadParameter(f"direction is {direction[:40]!r}.", hint="It must be forward or backward.")
    # If a client gets fewer lines than it requested, it assumes that no more lines match. So refuse a limit above the
    # endpoint's maximum instead of reducing it.
    limit = loki.read_limit("limit", _DEFAULT_RESULT_LIMIT, min(_MAX_RESULT_LIMIT, loki.access.endpoint.max_rows))
    logql_request = LogqlRequest(
        result_kind=ResultKind.ENTRIES,
        queries=(loki.logql_query,),
        start_us=time_range.start_us,
        end_us=time_range.end_us,
        limit=limit,
        is_oldest_first=direction == "forward",
    )
    flags = loki.request.joined_header(b"x-loki-response-encoding-flags").split(",")
    is_categorized = _CATEGORIZE_LABELS_FLAG in {flag.strip() for flag in flags}
    state = final_pipeline_state(query)
    encode = partial(loki_answers.encode_streams, state=state, is_categorized=is_categorized)
    return await _run_request(loki, logql_request, encode, (state, is_categorized))


async def _answer_samples(
    loki: _LokiRequest, query: MetricQuery, logql_request: LogqlRequest, *, is_instant: bool
) -> Response:
    constant = fold_constant(query)
    if constant is None:
        order = (
            _ORDERS_BY_FUNCTION.get(query.function_name) if is_instant and isinstance(query, VectorAggregate) else None
        )
        encode = partial(
            loki_answers.encode_samples, steps=logql_request.sample_steps, is_instant=is_instant, order=order
        )
        return await _run_request(loki, logql_request, encode, (logql_request.sample_steps, is_instant, order))
    body = loki_answers.encode_constant(
        constant, logql_request.sample_steps, is_instant=is_instant, is_vector=is_constant_vector(query)
    )
    return Response(200, [(b"content-type", JSON_MEDIA_TYPE), NO_STORE_HEADER], body)


async def _answer_labels(loki: _LokiRequest) -> Response:
    reader = loki.access
    sub_queries = await loki.services.query_service.describe_sub_queries(reader.endpoint, reader.caller, reader.account)
    body = loki_answers.success_body(stream_label_names(sub_queries))
    return Response(200, [(b"content-type", JSON_MEDIA_TYPE), NO_STORE_HEADER], body)


def _check_label_name(name: str) -> str:
    if not _LABEL_NAME_REGEX.fullmatch(name):
        raise BadParameter(f"{name[:60]!r} is not the name of a label.")
    return name


async def _answer_label_values(loki: _LokiRequest, label: str) -> Response:
    logql_request = _selector_request(loki, ResultKind.LABEL_VALUES, (loki.parameters.get("query") or "{}",))
    return await _run_request(
        loki, msgspec.structs.replace(logql_request, requested_label=label), loki_answers.encode_label_values, ()
    )


async def _answer_series(loki: _LokiRequest) -> Response:
    if not loki.selectors:
        raise BadParameter("The parameter match[] is missing.", hint='Send a selector, as in {service_name=~".+"}.')
    if len(loki.selectors) > _MAX_MATCH_SELECTORS:
        raise BadParameter(f"match[] was sent more than {_MAX_MATCH_SELECTORS} times.")
    return await _run_request(
        loki, _selector_request(loki, ResultKind.STREAMS, loki.selectors), loki_answers.encode_label_sets, ()
    )


async def _answer_stats(loki: _LokiRequest) -> Response:
    return await _run_request(
        loki,
        _selector_request(loki, ResultKind.STREAM_AND_ENTRY_COUNTS, (loki.logql_query,)),
        loki_answers.encode_stats,
        (),
    )


async def _answer_detected_labels(loki: _LokiRequest) -> Response:
    wanted = _selector_request(loki, ResultKind.STREAMS, (loki.parameters.get("query") or "{}",))
    return await _run_request(loki, wanted, loki_answers.encode_detected_labels, ())


async def _answer_detected_fields(loki: _LokiRequest) -> Response:
    limit = loki.read_limit("limit", _MAX_LABEL_VALUES, _MAX_RESULT_LIMIT)
    encode = partial(loki_answers.encode_detected_fields, limit=limit)
    return await _run_request(loki, _newest_lines_request(loki), encode, (limit,))


async def _answer_detected_field_values(loki: _LokiRequest, field: str) -> Response:
    limit = loki.read_limit("limit", _MAX_LABEL_VALUES, _MAX_RESULT_LIMIT)
    encode = partial(loki_answers.encode_detected_field_values, field_name=field, limit=limit)
    return await _run_request(loki, _newest_lines_request(loki), encode, ("field values", field, limit))


def _newest_lines_request(loki: _LokiRequest) -> LogqlRequest:
    """Return a request for the newest lines that the query finds, from which fields are detected."""
    lines = loki.read_limit("line_limit", _DEFAULT_LINE_LIMIT, _MAX_RESULT_LIMIT)
    return msgspec.structs.replace(_selector_request(loki, ResultKind.ENTRIES, (loki.logql_query,)), limit=lines)


def _selector_request(loki: _LokiRequest, wanted: ResultKind, queries: tuple[str, ...]) -> LogqlRequest:
    time_range = loki.read_time_range(_DEFAULT_LABELS_RANGE_SECONDS)
    return LogqlRequest(wanted, queries, time_range.start_us, time_range.end_us, limit=_MAX_LABEL_VALUES)


async def _answer_volume(loki: _LokiRequest) -> Response:
    time_range = loki.read_time_range(_HOUR_SECONDS)
    width_us = max(1, time_range.end_us - time_range.start_us)
    at = _TimeRange(time_range.end_ns, time_range.end_ns)
    logql_request = _samples_request(_volume_query(loki, width_us), at, _MICROSECONDS_PER_SECOND)
    return await _answer_volume_samples(loki, logql_request, is_instant=True)


async def _answer_volume_range(loki: _LokiRequest) -> Response:
    time_range = loki.read_time_range(_HOUR_SECONDS)
    step_us = _read_step(loki.parameters, time_range)
    logql_request = _samples_request(_volume_query(loki, step_us), time_range, step_us)
    return await _answer_volume_samples(loki, logql_request, is_instant=False)


async def _answer_volume_samples(loki: _LokiRequest, logql_request: LogqlRequest, *, is_instant: bool) -> Response:
    limit = loki.read_limit("limit", _DEFAULT_RESULT_LIMIT, _MAX_RESULT_LIMIT)
    encode = partial(
        loki_answers.encode_samples,
        steps=logql_request.sample_steps,
        is_instant=is_instant,
        order=SeriesOrder.DESCENDING,
        limit=limit,
    )
    return await _run_request(loki, logql_request, encode, (logql_request.sample_steps, is_instant, limit))


def _volume_query(loki: _LokiRequest, width_us: int) -> str:
    """Return a metric query for the number of bytes in each time range, by label.

    The labels are the target labels in the request, or else the labels in the selector.
    """
    selector = parse_log_query(loki.logql_query)
    if selector.stages:
        raise BadParameter("Volumes are those of a selector alone.", hint='Send one, as in {service_name=~".+"}.')
    if loki.parameters.get("aggregateBy", "series") != "series":
        raise BadParameter("aggregateBy is not supported.", hint="Leave it out, or send series.")
    sent = loki.parameters.get("targetLabels", "")
    labels = [label.strip() for label in sent.split(",")] if sent else [one.label for one in selector.matchers]
    for label in labels:
        _check_label_name(label)
    return f"sum by ({', '.join(dict.fromkeys(labels))}) (bytes_over_time({loki.logql_query}\n[{width_us}us]))"


async def _run_request(
    loki: _LokiRequest, wanted: LogqlRequest, encode: Callable[[Rows], Iterator[bytes]], options: tuple[object, ...]
) -> Response:
    """Compile and run a LogQL request as a sandbox query, and return the response.

    `options` must have all values on which the encoding of the answer depends. They become part of the format's name,
    so that the cache does not confuse answers in different encodings.
    """
    reader = loki.access
    pipelines = [pipeline for text in wanted.queries for pipeline in pipelines_of(parse_logql(text))]
    parameters = reader.endpoint_parameters(loki.parameters, pipelines)
    compared = {
        one.label for pipeline in pipelines for one in pipeline.matchers if one.operator is ComparisonOperator.EQUAL
    }
    given = tuple(sorted(compared & parameters.keys()))
    wanted = msgspec.structs.replace(wanted, labels_matched_by_parameters=given)
    query_request = QueryRequest(
        endpoint=reader.endpoint,
        caller=reader.caller,
        format=AnswerFormat(f"loki {wanted.result_kind} {options!r}", _JSON_MEDIA_TYPE, encode),
        parameters=parameters,
        sandbox=SandboxQuery(QueryLanguage.LOGQL, wanted.json_text),
        is_redaction_requested=read_redact_header(loki.request),
        bypasses_cache="no-cache" in loki.request.joined_header(b"cache-control"),
        anonymous_account=reader.account,
    )
    answer = await run_while_connected(loki.request, loki.services.query_service.answer(query_request, loki.request.id))
    response = await render_answer(loki.request, query_request, answer, loki.began_at)
    response.headers.append((b"vary", b"X-Loki-Response-Encoding-Flags"))
    return response


_HANDLERS_BY_PATH: Final[Mapping[str, Callable[[_LokiRequest], Awaitable[Response]]]] = {
    "query_range": _answer_range_query,
    "query": _answer_instant_query,
    "labels": _answer_labels,
    "label": _answer_labels,
    "series": _answer_series,
    "index/stats": _answer_stats,
    "index/volume": _answer_volume,
    "index/volume_range": _answer_volume_range,
    "detected_labels": _answer_detected_labels,
    "detected_fields": _answer_detected_fields,
}

# Paths with a name: the values of a label, and those of a field.
_VALUES_PATH_REGEX: Final = re.compile(r"(label|detected_field)/([^/]+)/values")
_VALUES_HANDLERS_BY_PATH: Final[Mapping[str, Callable[[_LokiRequest, str], Awaitable[Response]]]] = {
    "label": _answer_label_values,
    "detected_field": _answer_detected_field_values,
}

# The routes of Loki's read API, and the HTTP methods that all of them accept.
_HTTP_METHODS: Final = ("GET", "HEAD", "POST", "OPTIONS")
_ROUTE_WITHOUT_ENDPOINT: Final = Route("loki_read", _HTTP_METHODS, _answer_without_endpoint)

ROUTES_BY_PATH: Final[Mapping[bytes, Route]] = {
    f"{_API_PATH_PREFIX}{path}".encode(): _ROUTE_WITHOUT_ENDPOINT for path in _HANDLERS_BY_PATH
}
PATTERN_ROUTES: Final[tuple[tuple[re.Pattern[bytes], Route], ...]] = (
    (re.compile(rb"/loki/api/v1/(?:label|detected_field)/([^/]+)/values"), _ROUTE_WITHOUT_ENDPOINT),
    # All other paths with one segment after `/loki/api/v1/`. They are answered with an error, even if Loki has them.
    (re.compile(rb"/loki/api/v1/([^/]+)"), _ROUTE_WITHOUT_ENDPOINT),
    (
        re.compile(rb"/api/endpoints/([^/]+/loki/api/v1/.+)"),
        Route("loki_read", _HTTP_METHODS, _answer_for_endpoint),
    ),
)
