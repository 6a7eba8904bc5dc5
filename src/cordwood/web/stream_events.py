"""Routes for the events of a stream, which need a private key: export, import of an export, and the newest events."""

import re
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from cordwood.access import apply_pinned_parameters
from cordwood.errors import BadParameter, Forbidden, NotAcceptable
from cordwood.ingest.build_events import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, parse_timestamp_us
from cordwood.model.definitions import Endpoint, Parameter, Stream
from cordwood.model.key import Caller
from cordwood.observe.observation import EventsIngested, Observer
from cordwood.serve.jobs import ExportRange
from cordwood.serve.query_request import AnswerFormat, QueryRequest
from cordwood.web.answer_rendering import render_answer
from cordwood.web.asgi import Request, Response, no_store_json_response, parse_count_parameter
from cordwood.web.credentials import require_private_caller
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME, JSON_FORMAT, arrow, parquet
from cordwood.web.encode.text import encode_event_array, encode_event_lines
from cordwood.web.ingest import accepted_response
from cordwood.web.query_request_parser import read_redact_header
from cordwood.web.request_body import read_body, run_while_connected
from cordwood.web.services import Services, WebOptions, require_stream

STREAM_EVENTS_PATH_REGEX = re.compile(rb"/api/streams/([^/]+)/events")

# The formats of exports. Exports are streamed in all of these formats, unlike answers to queries, so that a whole
# export is never in memory.
_EXPORT_FORMATS_BY_NAME: Mapping[str, AnswerFormat] = {
    "parquet": AnswerFormat("parquet", "application/vnd.apache.parquet", parquet.encode_parquet, is_streamable=True),
    "ndjson": AnswerFormat("ndjson", "application/x-ndjson", encode_event_lines, is_streamable=True),
    "json": AnswerFormat("json", "application/json; charset=utf-8", encode_event_array, is_streamable=True),
    "csv": ANSWER_FORMATS_BY_NAME["csv"],
    "arrow": AnswerFormat("arrow", "application/vnd.apache.arrow.stream", arrow.encode_arrow, is_streamable=True),
}
_EXPORT_ENDPOINT = Endpoint(
    name="stream.export",
    id=UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a03"),
    sql="",
    revision="stream.export/1",
    parameters=(Parameter("project"),),
)


async def export_events(request: Request, services: Services, name: str) -> Response:
    began = time.perf_counter()
    caller, query = require_private_caller(request, services)
    if caller.redact_always:
        raise Forbidden("This key is answered redacted, and an export holds events as they are stored.")
    stream = require_stream(services, name)
    request.log_fields["stream"] = stream.name
    since_us, until_us = _read_time_bounds(query)
    export_range = ExportRange(
        stream.name, since_us, until_us, project=apply_pinned_parameters(caller, {}, _EXPORT_ENDPOINT).get("project")
    )
    query_request = QueryRequest(_EXPORT_ENDPOINT, caller, _export_format(query.get("format") or "parquet"))
    return await render_answer(
        request,
        query_request,
        await services.query_service.export_events(query_request, export_range, request.id),
        began,
    )


def _export_format(name: str) -> AnswerFormat:
    if name not in _EXPORT_FORMATS_BY_NAME:
        raise NotAcceptable(
            f"There is no format {name!r}.", hint="There are: " + ", ".join(_EXPORT_FORMATS_BY_NAME) + "."
        )
    return _EXPORT_FORMATS_BY_NAME[name]


def _read_time_bounds(query: Mapping[str, str]) -> tuple[int, int]:
    since_us = _read_time_bound("from", query.get("from"), MIN_TIMESTAMP_US)
    until_us = _read_time_bound("to", query.get("to"), MAX_TIMESTAMP_US + 1)
    if since_us >= until_us:
        raise BadParameter("Nothing lies between from and to: to is not later.", hint="from is included, to is not.")
    return since_us, until_us


def _read_time_bound(name: str, text: str | None, default: int) -> int:
    if not text:
        return default
    found = parse_timestamp_us(text)
    if found is None:
        raise BadParameter(f"{name}={text!r} is not a time.", hint="Write it like 2026-01-31T12:00:00Z.")
    return found


async def reimport_events(
    request: Request, services: Services, options: WebOptions, observer: Observer, name: str
) -> Response:
    caller, _ = require_private_caller(request, services)
    stream = require_stream(services, name)
    request.log_fields["stream"] = stream.name
    with services.intake.body_budget.open_reservation(caller.key_id) as reservation:
        body = await read_body(request, options.event_body_bounds, reservation)
        accepted = await services.intake.reimport_exported_events(stream, body, _pinned_project(caller))
    observer.record(
        EventsIngested(
            stream=stream.name, accepted=accepted.accepted, duplicates=accepted.duplicates, late=accepted.late_events
        )
    )
    return accepted_response(accepted)


def _pinned_project(caller: Caller) -> str | None:
    if caller.pins.keys() - {"project"}:
        raise Forbidden("This key is pinned to more than a project, and nothing else is known of an event.")
    return caller.pins.get("project")


_MAX_RECENT_EVENTS = 100
_RECENT_EVENTS_ENDPOINT_ID = UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a05")


async def show_recent_events(request: Request, services: Services, address: str) -> Response:
    """Return the newest events of a stream, queried as from an endpoint, so that limits, pins and redaction apply."""
    caller, query = require_private_caller(request, services)
    stream = require_stream(services, address)
    request.log_fields["stream"] = stream.name
    endpoint = _recent_events_endpoint(
        stream, parse_count_parameter(query.get("limit"), _MAX_RECENT_EVENTS, _MAX_RECENT_EVENTS)
    )
    redact = read_redact_header(request)
    query_request = QueryRequest(
        endpoint,
        caller,
        JSON_FORMAT,
        apply_pinned_parameters(caller, {}, endpoint),
        is_redaction_requested=redact,
        is_ad_hoc=True,
    )
    answer = await run_while_connected(request, services.query_service.answer(query_request, request.id))
    rows = msgspec.json.decode(answer.complete_answer.body)["result"]
    return no_store_json_response([_event_json(row) for row in rows])


def _recent_events_endpoint(stream: Stream, limit: int) -> Endpoint:
    sql = f"""
      select to_json_string(e) as event, e.timestamp, e.ingested_at
      from (
        select * from {_quote_name(stream.name)}
        where @project is null or project = @project
        order by timestamp desc, id limit {limit}
      ) as e
      order by e.timestamp, e.id desc"""  # noqa: S608 - a stream of the catalog, and a checked number
    revision = f"stream.recent/1/{stream.id}/{limit}"
    return Endpoint(
        "stream.recent", _RECENT_EVENTS_ENDPOINT_ID, sql, revision, max_rows=limit, parameters=(Parameter("project"),)
    )


def _quote_name(name: str) -> str:
    """Return a name as an SQL identifier in backquotes."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _event_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as JSON fields. Columns that are null are left out, and times are numbers."""
    event = {name: value for name, value in msgspec.json.decode(row["event"]).items() if value is not None}
    return event | {"timestamp": row["timestamp"], "ingested_at": row["ingested_at"]}
