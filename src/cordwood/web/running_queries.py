"""The queries that are running now, with their progress, for callers that wait for them."""

from typing import Any

from cordwood.access import may_see_others, require_query
from cordwood.engines.engine import Progress
from cordwood.serve.active_queries import RunningQuery
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import identified_caller
from cordwood.web.lifecycle import Services
from cordwood.web.responses import no_store_json


async def list_queries(request: Request, services: Services) -> Response:
    """List the caller's own queries; an unrestricted private key sees those of all callers."""
    caller, _ = identified_caller(request, services)
    require_query(caller, None)
    services.answers.admit(caller)
    sees_others = may_see_others(caller)
    running = services.answers.running(None if sees_others else caller)
    return no_store_json({"queries": [describe_query(query, has_rows=sees_others) for query in running]})


def describe_query(query: RunningQuery, *, has_rows: bool) -> dict[str, Any]:
    """Return a query as it is listed.

    Numbers of rows are for callers who may see all events, because the engine also counts those of other projects.
    """
    progress = query.progress if has_rows else Progress(part=query.progress.part)
    return {
        "id": query.request_id or None,
        "endpoint": query.endpoint,
        "seconds": round(query.seconds, 3),
        "rows_read": progress.rows_read,
        "rows_total": progress.rows_total,
        "part": None if progress.part is None else round(progress.part, 4),
    }
