"""The handlers of Loki's read API, and their routes."""

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from cordwood.errors import BadParameter, Fault, NotOffered, UnknownRoute, UnsupportedMedia
from cordwood.logql.constant_queries import fold_constant, is_vector
from cordwood.logql.label_names import stream_label_names
from cordwood.logql.labels import final_state
from cordwood.logql.parse import parse, parse_selectors
from cordwood.logql.request import LogqlRequest, ResultKind, check_steps
from cordwood.logql.syntax import Comparison, Metric, Pipeline, VectorAggregate, pipelines_of
from cordwood.model.json_checks import FORM_MEDIA_TYPE
from cordwood.model.rows import Rows
from cordwood.model.timestamps import now_us
from cordwood.serve.query_request import Format, Language, QueryRequest, SandboxText
from cordwood.web.answer_rendering import render_answer
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import account_of_key
from cordwood.web.lifecycle import Services
from cordwood.web.loki_api import answers
from cordwood.web.loki_api.answers import Order
from cordwood.web.loki_api.requests import (
    SECOND_US,
    Reader,
    TimeRange,
    read_caller,
    read_interval,
    read_range,
    read_step,
    read_time,
)
from cordwood.web.options import WebOptions
from cordwood.web.percent_encoding import decoded, each_pair, pairs
from cordwood.web.problems import CHALLENGE, status_of, when_to_retry
from cordwood.web.query_request_parser import redact_asked
from cordwood.web.receiving import read_body, while_connected
from cordwood.web.responses import JSON, NO_STORE
from cordwood.web.route import HandlerContext, Route

_PREFIX: Final = "/loki/api/v1/"

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_JSON: Final = JSON.decode()
# Clients of Loki read 400 as a mistake in the query.
_AS_MISTAKE: Final = frozenset({406, 413, 415, 422})

_HOUR_SECONDS: Final = 3600
# The range of labels, values and streams without `start`.
_LABELS_SECONDS: Final = 6 * _HOUR_SECONDS
_DEFAULT_LIMIT: Final = 100
_MAX_LIMIT: Final = 5000
_MAX_VALUES: Final = 1000
_SAMPLE_LINES: Final = 100
_MAX_MATCHES: Final = 10
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_VALUES_PATH: Final = re.compile(r"label/([^/]+)/values")
_CATEGORIZED: Final = "categorize-labels"
# The order of an instant vector, by the outermost function.
_ORDERS: Final[Mapping[str, Order]] = {
    "sort": Order.ASCENDING,
    "sort_desc": Order.DESCENDING,
    "topk": Order.DESCENDING,
    "bottomk": Order.ASCENDING,
}
_REFUSED: Final[Mapping[str, str]] = {
    "tail": "Ask for query_range again, from the time of the last entry on.",
    "patterns": "Count lines by a label instead.",
    "format_query": "Format the query in the editor.",
}


class _Asked(msgspec.Struct, frozen=True):
    """A request with its parameters. `matches` are the selectors of `match[]`."""

    request: Request
    services: Services
    reader: Reader
    texts: Mapping[str, str]
    matches: tuple[str, ...]
    now_us: int
    began: float

    @property
    def query(self) -> str:
        text = self.texts.get("query", "")
        if not text.strip():
            raise BadParameter("The parameter query is missing.", hint='Send LogQL, as in {service_name="my.app"}.')
        return text

    def limit(self, name: str, default: int, most: int) -> int:
        text = self.texts.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise BadParameter(f"{name} is {text[:40]!r}.", hint=f"It must be a number from 1 to {most}.")
        return int(text)

    def time_range(self, default_seconds: int) -> TimeRange:
        return read_range(self.texts, self.now_us, default_seconds)


def failed(fault: Fault, _: Request) -> Response:
    """Return the error as a text."""
    status = status_of(fault)
    status = 400 if status in _AS_MISTAKE else status
    headers = [_TEXT, NO_STORE, *when_to_retry(fault, status)]
    if status == 401:
        headers.append(CHALLENGE)
    return Response(status, headers, fault.told().encode())


async def _answer_root(context: HandlerContext) -> Response:
    """Answer at `/loki/api/v1/…`: the streams for a private key, else logs.all."""
    path = decoded(context.request.path, "path").rstrip("/")
    return await _answer(context, "", path.removeprefix(_PREFIX))


async def _answer_below_endpoint(context: HandlerContext) -> Response:
    """Answer at `/api/endpoints/NAME/loki/api/v1/…`."""
    endpoint, _, path = context.address.partition(_PREFIX)
    return await _answer(context, endpoint, path)


async def _answer(context: HandlerContext, endpoint: str, path: str) -> Response:
    began = time.perf_counter()
    request, services = context.request, context.services()
    query = pairs(request.query_string, "query string")
    reader = read_caller(request, services, query, endpoint)
    sent = [*each_pair(request.query_string, "query string"), *await _sent_in_body(request, context.edge.options)]
    matches = tuple(text for name, text in sent if name in ("match[]", "match"))
    asked = _Asked(request, services, reader, dict(sent), matches, now_us(), began)
    values = _VALUES_PATH.fullmatch(path)
    if values is not None:
        return await _label_values(asked, values[1])
    if path in _REFUSED:
        raise NotOffered(f"{path} is not offered.", hint=_REFUSED[path])
    handler = _HANDLERS.get(path)
    if handler is None:
        raise UnknownRoute(f"Loki's read API has no {path[:60]} here.", hint=f"There are: {', '.join(_HANDLERS)}.")
    return await handler(asked)


async def _sent_in_body(request: Request, options: WebOptions) -> list[tuple[str, str]]:
    if request.method != "POST" or not request.announces_body():
        return []
    if request.media_type() not in ("", FORM_MEDIA_TYPE):
        raise UnsupportedMedia("The parameters are not a form.", hint=f"Send {FORM_MEDIA_TYPE}.")
    with options.query_budget.reserve(account_of_key(request, request.facts.get("key", ""))) as reservation:
        return list(each_pair(await read_body(request, options.queries, reservation), "form"))


async def _range_query(asked: _Asked) -> Response:
    time_range = asked.time_range(_HOUR_SECONDS)
    query = parse(asked.query)
    if isinstance(query, Pipeline):
        return await _log_lines(asked, query, time_range)
    step_us = read_step(asked.texts, time_range)
    return await _samples(asked, query, _request_of_steps(asked.query, time_range, step_us), is_instant=False)


async def _instant_query(asked: _Asked) -> Response:
    query = parse(asked.query)
    if isinstance(query, Pipeline):
        raise BadParameter(
            "Log queries are not supported as instant queries.", hint="Ask for query_range, or count the lines."
        )
    time_ns = read_time("time", asked.texts, asked.now_us * 1000)
    at = TimeRange(time_ns, time_ns)
    return await _samples(asked, query, _request_of_steps(asked.query, at, SECOND_US), is_instant=True)


def _request_of_steps(text: str, time_range: TimeRange, step_us: int) -> LogqlRequest:
    start_us = time_range.start_us
    end_us = max(start_us, time_range.end_ns // 1000)
    request = LogqlRequest(ResultKind.SAMPLES, (text,), start_us, end_us, step_us)
    check_steps(request.steps)
    return request


async def _log_lines(asked: _Asked, query: Pipeline, time_range: TimeRange) -> Response:
    if read_interval("interval", asked.texts, 0):
        raise BadParameter("interval is not supported.", hint="Leave it out, and send a smaller limit.")
    direction = asked.texts.get("direction", "").lower() or "backward"
    if direction not in ("forward", "backward"):
        raise BadParameter(f"direction is {direction[:40]!r}.", hint="It must be forward or backward.")
    # A client takes fewer lines than it asked for to be all that there are.
    limit = asked.limit("limit", _DEFAULT_LIMIT, min(_MAX_LIMIT, asked.reader.endpoint.max_rows))
    wanted = LogqlRequest(
        wanted=ResultKind.ENTRIES,
        queries=(asked.query,),
        start_us=time_range.start_us,
        end_us=time_range.end_us,
        limit=limit,
        is_forward=direction == "forward",
    )
    flags = asked.request.joined(b"x-loki-response-encoding-flags").split(",")
    is_categorized = _CATEGORIZED in {flag.strip() for flag in flags}
    state = final_state(query)
    encode = partial(answers.encode_streams, state=state, is_categorized=is_categorized)
    return await _run(asked, wanted, encode, (state, is_categorized))


async def _samples(asked: _Asked, query: Metric, wanted: LogqlRequest, *, is_instant: bool) -> Response:
    constant = fold_constant(query)
    if constant is None:
        order = _ORDERS.get(query.function) if is_instant and isinstance(query, VectorAggregate) else None
        encode = partial(answers.encode_samples, steps=wanted.steps, is_instant=is_instant, order=order)
        return await _run(asked, wanted, encode, (wanted.steps, is_instant, order))
    body = answers.encode_constant(constant, wanted.steps, is_instant=is_instant, is_vector=is_vector(query))
    return Response(200, [(b"content-type", JSON), NO_STORE], body)


async def _labels(asked: _Asked) -> Response:
    reader = asked.reader
    sub_queries = await asked.services.answers.sub_queries(reader.endpoint, reader.caller, reader.account)
    body = answers.succeeded(stream_label_names(sub_queries))
    return Response(200, [(b"content-type", JSON), NO_STORE], body)


async def _label_values(asked: _Asked, label: str) -> Response:
    if not _LABEL.fullmatch(label):
        raise BadParameter(f"{label[:60]!r} is no name of a label.")
    wanted = _selection(asked, ResultKind.VALUES, (asked.texts.get("query") or "{}",))
    return await _run(asked, msgspec.structs.replace(wanted, label=label), answers.encode_values, ())


async def _series(asked: _Asked) -> Response:
    if not asked.matches:
        raise BadParameter("The parameter match[] is missing.", hint='Send a selector, as in {service_name=~".+"}.')
    if len(asked.matches) > _MAX_MATCHES:
        raise BadParameter(f"match[] was sent more than {_MAX_MATCHES} times.")
    return await _run(asked, _selection(asked, ResultKind.STREAMS, asked.matches), answers.encode_label_sets, ())


async def _stats(asked: _Asked) -> Response:
    return await _run(asked, _selection(asked, ResultKind.COUNTS, (asked.query,)), answers.encode_counts, ())


async def _detected_labels(asked: _Asked) -> Response:
    wanted = _selection(asked, ResultKind.STREAMS, (asked.texts.get("query") or "{}",))
    return await _run(asked, wanted, answers.encode_detected_labels, ())


async def _detected_fields(asked: _Asked) -> Response:
    wanted = _selection(asked, ResultKind.ENTRIES, (asked.query,))
    lines = asked.limit("line_limit", _SAMPLE_LINES, _MAX_LIMIT)
    limit = asked.limit("limit", _MAX_VALUES, _MAX_LIMIT)
    wanted = msgspec.structs.replace(wanted, limit=lines)
    return await _run(asked, wanted, partial(answers.encode_detected_fields, limit=limit), (limit,))


def _selection(asked: _Asked, wanted: ResultKind, queries: tuple[str, ...]) -> LogqlRequest:
    time_range = asked.time_range(_LABELS_SECONDS)
    return LogqlRequest(wanted, queries, time_range.start_us, time_range.end_us, limit=_MAX_VALUES)


async def _volume(asked: _Asked) -> Response:
    time_range = asked.time_range(_HOUR_SECONDS)
    width_us = max(1, time_range.end_us - time_range.start_us)
    at = TimeRange(time_range.end_ns, time_range.end_ns)
    wanted = _request_of_steps(_volume_query(asked, width_us), at, SECOND_US)
    return await _volumes(asked, wanted, is_instant=True)


async def _volume_range(asked: _Asked) -> Response:
    time_range = asked.time_range(_HOUR_SECONDS)
    step_us = read_step(asked.texts, time_range)
    wanted = _request_of_steps(_volume_query(asked, step_us), time_range, step_us)
    return await _volumes(asked, wanted, is_instant=False)


async def _volumes(asked: _Asked, wanted: LogqlRequest, *, is_instant: bool) -> Response:
    limit = asked.limit("limit", _DEFAULT_LIMIT, _MAX_LIMIT)
    encode = partial(
        answers.encode_samples, steps=wanted.steps, is_instant=is_instant, order=Order.DESCENDING, limit=limit
    )
    return await _run(asked, wanted, encode, (wanted.steps, is_instant, limit))


def _volume_query(asked: _Asked, width_us: int) -> str:
    """Return the metric query of the bytes in ranges of a width, by the target labels or those of the selector."""
    selector = parse_selectors(asked.query)
    if selector.stages:
        raise BadParameter("Volumes are those of a selector alone.", hint='Send one, as in {service_name=~".+"}.')
    if asked.texts.get("aggregateBy", "series") != "series":
        raise BadParameter("aggregateBy is not supported.", hint="Leave it out, or send series.")
    sent = asked.texts.get("targetLabels", "")
    labels = [label.strip() for label in sent.split(",")] if sent else [one.label for one in selector.matchers]
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise BadParameter(f"{label[:60]!r} is no name of a label.")
    return f"sum by ({', '.join(dict.fromkeys(labels))}) (bytes_over_time({asked.query}\n[{width_us}us]))"


async def _run(
    asked: _Asked, wanted: LogqlRequest, encode: Callable[[Rows], Iterator[bytes]], options: tuple[object, ...]
) -> Response:
    """Compile and run a request like a sandbox query. `options` are all that the encoder depends on."""
    reader = asked.reader
    pipelines = [pipeline for text in wanted.queries for pipeline in pipelines_of(parse(text))]
    parameters = reader.parameters(asked.texts, pipelines)
    compared = {one.label for pipeline in pipelines for one in pipeline.matchers if one.operator is Comparison.EQUAL}
    given = tuple(sorted(compared & parameters.keys()))
    wanted = msgspec.structs.replace(wanted, given=given)
    query_request = QueryRequest(
        endpoint=reader.endpoint,
        caller=reader.caller,
        format=Format(f"loki {wanted.wanted} {options!r}", _JSON, encode),
        parameters=parameters,
        sandbox=SandboxText(Language.LOGQL, wanted.text),
        redact=redact_asked(asked.request),
        fresh="no-cache" in asked.request.joined(b"cache-control"),
        counted_as=reader.account,
    )
    answer = await while_connected(asked.request, asked.services.answers.answer(query_request, asked.request.id))
    response = await render_answer(asked.request, query_request, answer, asked.began)
    response.headers.append((b"vary", b"X-Loki-Response-Encoding-Flags"))
    return response


_HANDLERS: Final[Mapping[str, Callable[[_Asked], Awaitable[Response]]]] = {
    "query_range": _range_query,
    "query": _instant_query,
    "labels": _labels,
    "label": _labels,
    "series": _series,
    "index/stats": _stats,
    "index/volume": _volume,
    "index/volume_range": _volume_range,
    "detected_labels": _detected_labels,
    "detected_fields": _detected_fields,
}

# The routes.
_METHODS: Final = ("GET", "HEAD", "POST", "OPTIONS")
_ROOT: Final = Route("loki_read", _METHODS, _answer_root)

EXACT: Final[Mapping[bytes, Route]] = {f"{_PREFIX}{path}".encode(): _ROOT for path in _HANDLERS}
NAMED: Final[tuple[tuple[re.Pattern[bytes], Route], ...]] = (
    (re.compile(rb"/loki/api/v1/label/([^/]+)/values"), _ROOT),
    # What is not offered, and what does not exist.
    (re.compile(rb"/loki/api/v1/([^/]+)"), _ROOT),
    (
        re.compile(rb"/api/endpoints/([^/]+/loki/api/v1/.+)"),
        Route("loki_read", _METHODS, _answer_below_endpoint),
    ),
)
