"""The latest events of a stream as they were sent, with a private key."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from cordwood.access import pinned
from cordwood.model.endpoint import Endpoint
from cordwood.model.parameter import Parameter
from cordwood.model.stream import Stream
from cordwood.serve.ask import Ask
from cordwood.web.asgi import Request, Response
from cordwood.web.ask import redact_asked
from cordwood.web.connection import while_connected
from cordwood.web.credentials import private_caller
from cordwood.web.named import existing_stream
from cordwood.web.negotiate import JSON as JSON_ROWS
from cordwood.web.standing import Rooms
from cordwood.web.texts import asked_count
from cordwood.web.unkept import unkept_json

_MOST = 100
_ID = UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a05")


async def recent_events(request: Request, rooms: Rooms, address: str) -> Response:
    """Return the latest events. They are queried like any endpoint, so that limits, pins and redaction apply."""
    caller, query = private_caller(request, rooms)
    stream = existing_stream(rooms, address)
    request.facts["stream"] = stream.name
    endpoint = _endpoint(stream, asked_count(query.get("limit"), _MOST, _MOST))
    redact = redact_asked(request)
    ask = Ask(endpoint, caller, JSON_ROWS, pinned(caller, {}, endpoint), redact=redact, is_ad_hoc=True)
    answer = await while_connected(request, rooms.answers.answer(ask))
    rows = msgspec.json.decode(answer.finished.body)["result"]
    return unkept_json([_event(row) for row in rows])


def _endpoint(stream: Stream, most: int) -> Endpoint:
    sql = f"""
      select to_json_string(e) as event, e.timestamp, e.ingested_at
      from (
        select * from {_quoted(stream.name)}
        where @project is null or project = @project
        order by timestamp desc, id limit {most}
      ) as e
      order by e.timestamp, e.id desc"""  # noqa: S608 - a stream of the catalog, and a checked number
    revision = f"stream.recent/1/{stream.id}/{most}"
    return Endpoint("stream.recent", _ID, sql, revision, max_rows=most, parameters=(Parameter("project"),))


def _quoted(name: str) -> str:
    """Quote a name in backquotes."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event without null columns, with times as numbers."""
    event = {name: value for name, value in msgspec.json.decode(row["event"]).items() if value is not None}
    return event | {"timestamp": row["timestamp"], "ingested_at": row["ingested_at"]}
