"""Export a stream's stored events with a private key, as a Parquet file that can be imported again."""

import re
import time
from collections.abc import Mapping
from uuid import UUID

from cordwood.access import pinned
from cordwood.errors import BadParameter, Forbidden
from cordwood.ingest.stamp import read_timestamp
from cordwood.model.endpoint import Endpoint
from cordwood.model.parameter import Parameter
from cordwood.serve.ask import Ask, Format
from cordwood.serve.jobs import Range
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import uncounted_caller
from cordwood.web.deliver import delivered
from cordwood.web.encode import parquet
from cordwood.web.named import existing_stream
from cordwood.web.standing import Rooms

EVENTS_ADDRESS = re.compile(rb"/api/streams/([^/]+)/events")

# Unlike that of answers, it streams row groups, so that the file is never held in memory.
_PARQUET = Format("parquet", "application/vnd.apache.parquet", parquet.encode, streams=True)
_EXPORT = Endpoint(
    name="stream.export",
    id=UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a03"),
    sql="",
    revision="stream.export/1",
    parameters=(Parameter("project"),),
)
_EARLIEST_US, _LATEST_US = -(10**16), 10**17


async def export_events(request: Request, rooms: Rooms, name: str) -> Response:
    began = time.perf_counter()
    caller, query = uncounted_caller(request, rooms)
    if caller.redact_always:
        raise Forbidden("This key is answered redacted, and an export holds events as they are stored.")
    stream = existing_stream(rooms, name)
    request.facts["stream"] = stream.name
    rooms.answers.admit(caller)
    since_us, until_us = _times(query)
    wanted = Range(stream.name, since_us, until_us, project=pinned(caller, {}, _EXPORT).get("project"))
    ask = Ask(_EXPORT, caller, _PARQUET)
    return await delivered(request, ask, await rooms.answers.export(ask, wanted), began)


def _times(query: Mapping[str, str]) -> tuple[int, int]:
    since_us = _time("from", query.get("from"), _EARLIEST_US)
    until_us = _time("to", query.get("to"), _LATEST_US)
    if since_us >= until_us:
        raise BadParameter("Nothing lies between from and to: to is not later.", hint="from is included, to is not.")
    return since_us, until_us


def _time(name: str, text: str | None, otherwise: int) -> int:
    if not text:
        return otherwise
    found = read_timestamp(text)
    if found is None:
        raise BadParameter(f"{name}={text!r} is no time.", hint="Write it like 2026-01-31T12:00:00Z.")
    return found
