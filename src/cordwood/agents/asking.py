"""Queries of tools: send one, take its rows within bounds, and state what was left out."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from cordwood.agents.api import ApiCall, KeyedApi, OfferedEndpoint, Reply, WholeBody
from cordwood.agents.refusals import refused_call
from cordwood.agents.rows import MOST_ROWS, AgentRows, Bounds

NDJSON: Final = "application/x-ndjson"
_MOST_NOTICES: Final = 20
_LONGEST_NOTICE: Final = 300
_AD_HOC: Final = "/api/query"


async def ask_endpoint(
    api: KeyedApi,
    endpoint: OfferedEndpoint,
    parameters: Mapping[str, object],
    bounds: Bounds,
    query: str | None = None,
) -> dict[str, Any]:
    """Return the rows of an endpoint. `query` is the caller's own query among the parameters, for errors."""
    call = ApiCall(f"/api/endpoints/query/{quote(endpoint.name, safe='')}", parameters, NDJSON)
    return await _ask(api, call, bounds, endpoint.max_limit, query)


async def ask_streams(api: KeyedApi, sql: str, bounds: Bounds) -> dict[str, Any]:
    """Return the rows of SQL over whole streams."""
    return await _ask(api, ApiCall(_AD_HOC, {"sql": sql}, NDJSON), bounds, MOST_ROWS, sql)


async def read_document(api: KeyedApi, path: str) -> Any:
    """Return the JSON of a GET; raise RefusedCallError if it is refused or too large."""
    body = WholeBody()
    reply = await api.send(ApiCall(path), body.take)
    if reply.status >= 400:
        raise refused_call(reply)
    return body.json()


async def _ask(api: KeyedApi, call: ApiCall, bounds: Bounds, limit: int, query: str | None) -> dict[str, Any]:
    rows = AgentRows(bounds)
    reply = await api.send(call, rows.take)
    if reply.status >= 400:
        raise refused_call(reply, query)
    if not (reply.header("content-type") or "").startswith(NDJSON):
        # With Logflare's error format, a failed query is a 200 that has no rows.
        raise refused_call(Reply(reply.status, reply.headers, rows.unfinished), query)
    # What was left out comes before the rows, so that it is read first.
    told: dict[str, Any] = {"row_count": len(rows.rows)}
    cut = rows.cut or _cut_by_service(reply.header("cordwood-truncated"), len(rows.rows), limit)
    if cut is not None:
        told["truncated"] = f"Not all rows are here: {cut}. Narrow or aggregate the query to see the rest."
    if rows.is_shortened:
        told["shortened"] = "Long values are shortened, which is marked with …. Select a part of them to see it."
    notices = [notice[:_LONGEST_NOTICE] for notice in reply.all_of("cordwood-notice")[:_MOST_NOTICES]]
    return {**told, **({"notices": notices} if notices else {}), "rows": rows.rows}


def _cut_by_service(told: str | None, count: int, limit: int) -> str | None:
    """Return why the service cut the rows. A streamed answer does not tell it, since its headers come first."""
    if told is not None:
        return f"the service cut them at {told}"
    return f"the service answers with at most {limit} rows, and there may be more" if count >= limit else None
