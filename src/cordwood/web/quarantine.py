"""Routes for the quarantine, which need a private key: list, show and replay quarantined items."""

import re
from collections.abc import Mapping
from uuid import UUID

import msgspec

from cordwood.access import apply_pinned_parameters
from cordwood.errors import ItemNotReplayable, UnknownResource, UnknownStream
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.quarantine import QuarantinedItem
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.key import Caller
from cordwood.model.timestamps import datetime_from_micros
from cordwood.observe.observation import Observer
from cordwood.serve.query_request import QueryRequest
from cordwood.web.asgi import Request, Response, no_store_json_response, parse_count_parameter
from cordwood.web.credentials import audit_quarantine_replay, require_private_caller
from cordwood.web.encode import JSON_FORMAT
from cordwood.web.services import Services

QUARANTINE_ITEM_PATH_REGEX = re.compile(rb"/api/quarantine/([^/]+)")
REPLAY_PATH_REGEX = re.compile(rb"/api/quarantine/([^/]+)/replay")

ItemRow = dict[str, object]

_MAX_LISTED_ITEMS = 1000
_DEFAULT_LISTED_ITEMS = 100

_ITEMS_CTE = """
with items as (
  select t.id, t.timestamp, t.project, cast(m.stream as string) as stream, cast(m.form as string) as form,
    cast(m.index as int64) as index, cast(m.reason as string) as reason, cast(m.is_cut as bool) as is_cut,
    cast(m.text as string) as text, cast(m.replays as string) as replays,
    cast(m.is_transformed as bool) as is_transformed
  from `_quarantine` as t cross join unnest(t.metadata) as m
),
marks as (select replays, min(timestamp) as replayed_at from items where replays is not null group by replays)
"""
_FROM_AND_WHERE_SQL = """
from items as i left join marks as k on k.replays = i.id
where i.replays is null and (@project is null or i.project = @project)
"""
_LIST_ENDPOINT = Endpoint(
    name="quarantine.list",
    id=UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a01"),
    sql=f"""{_ITEMS_CTE}
      select i.id, i.timestamp, i.project, i.stream, i.form, i.index, i.reason, i.is_cut, k.replayed_at,
        substr(i.text, 1, 120) as beginning
      {_FROM_AND_WHERE_SQL} and (@stream is null or i.stream = @stream)
      order by i.timestamp desc, i.id""",
    revision="quarantine.list/1",
    max_rows=_MAX_LISTED_ITEMS,
    parameters=(Parameter("project"), Parameter("stream")),
)
_SHOW_ENDPOINT = Endpoint(
    name="quarantine.show",
    id=UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a02"),
    sql=f"""{_ITEMS_CTE}
      select i.id, i.timestamp, i.project, i.stream, i.form, i.index, i.reason, i.is_cut, k.replayed_at, i.text,
        i.is_transformed
      {_FROM_AND_WHERE_SQL} and i.id = @id""",
    revision="quarantine.show/2",
    max_rows=1,
    parameters=(Parameter("project"), Parameter("id")),
)


async def list_quarantine(request: Request, services: Services) -> Response:
    caller, query = require_private_caller(request, services)
    limit = parse_count_parameter(query.get("limit"), _DEFAULT_LISTED_ITEMS, _MAX_LISTED_ITEMS)
    filters = {"stream": query["stream"]} if query.get("stream") else {}
    found = await _query_items(services, caller, _LIST_ENDPOINT, filters)
    return no_store_json_response([_item_json(item) for item in found[:limit]])


async def show_item(request: Request, services: Services, item_id: str) -> Response:
    caller, _ = require_private_caller(request, services)
    return no_store_json_response(_item_json(await _find_item(services, caller, item_id)))


async def replay_item(request: Request, services: Services, observer: Observer, item_id: str) -> Response:
    caller, _ = require_private_caller(request, services)
    item = await _find_item(services, caller, item_id)
    quarantined = _quarantined_item(item)
    stream = services.catalog.stream(quarantined.stream)
    if stream is None:
        raise UnknownStream(
            f"There is no stream {quarantined.stream!r} any more.", hint="Name it in the streams file again."
        )
    if item["replayed_at"] is not None:
        return no_store_json_response({"message": "Was replayed before.", "accepted": 0, "duplicates": 1})
    accepted = await services.intake.replay_quarantined_item(stream, quarantined, caller.pins or None)
    audit_quarantine_replay(observer, request, item_id, stream.name)
    late = {"late": accepted.late_events} if accepted.late_events else {}
    return no_store_json_response(
        {"message": "Replayed.", "accepted": accepted.accepted, "duplicates": accepted.duplicates, **late}
    )


async def _query_items(
    services: Services, caller: Caller, endpoint: Endpoint, parameters: Mapping[str, str]
) -> list[ItemRow]:
    """Query the stream of quarantined items as if through an endpoint, so that limits and the pins of the key apply."""
    query_request = QueryRequest(endpoint, caller, JSON_FORMAT, apply_pinned_parameters(caller, parameters, endpoint))
    answer = await services.query_service.answer(query_request)
    rows: list[ItemRow] = msgspec.json.decode(answer.complete_answer.body)["result"]
    return rows


async def _find_item(services: Services, caller: Caller, item_id: str) -> ItemRow:
    found = await _query_items(services, caller, _SHOW_ENDPOINT, {"id": item_id})
    if not found:
        raise UnknownResource(
            "Nothing of this id was set aside.", hint="It may be older than 7 days: those are dropped."
        )
    return found[0]


def _quarantined_item(item: ItemRow) -> QuarantinedItem:
    if item["is_cut"]:
        raise ItemNotReplayable(
            "Only the beginning of this item was kept, so it cannot be replayed.",
            hint="Send it again from where it came, in smaller events.",
        )
    return QuarantinedItem(
        id=str(item["id"]),
        received_us=int(str(item["timestamp"])),
        stream=str(item["stream"]),
        body_format=BodyFormat(str(item["form"])),
        text=str(item["text"]),
        project=None if item["project"] is None else str(item["project"]),
        is_transformed=item["is_transformed"] is True,
    )


def _item_json(item: ItemRow) -> ItemRow:
    return item | {"timestamp": _iso_time(item["timestamp"]), "replayed_at": _iso_time(item["replayed_at"])}


def _iso_time(micros: object) -> str | None:
    if micros is None:
        return None
    return datetime_from_micros(int(str(micros))).isoformat().replace("+00:00", "Z")
