"""Where a request carries its key: the first place that has one counts, alone."""

from collections.abc import Mapping

from cordwood.access import require_management
from cordwood.model.caller import Caller
from cordwood.web.asgi import Request
from cordwood.web.standing import Rooms
from cordwood.web.texts import pairs

BEARER = b"bearer "


def presented(request: Request, query: Mapping[str, str]) -> str | None:
    authorization = request.headers.get(b"authorization", b"")
    if authorization[:7].lower() == BEARER:
        return authorization[7:].strip().decode("latin-1")
    key = request.headers.get(b"x-api-key")
    if key is not None:
        return key.strip().decode("latin-1")
    return query.get("api_key")


def private_caller(request: Request, rooms: Rooms) -> tuple[Caller, Mapping[str, str]]:
    """Who asks with a private key, counted against its rate, and the query string; Forbidden for other keys."""
    caller, query = uncounted_caller(request, rooms)
    rooms.answers.admit(caller)
    return caller, query


def uncounted_caller(request: Request, rooms: Rooms) -> tuple[Caller, Mapping[str, str]]:
    """The same for whom more is asked of the key before the request counts."""
    query = pairs(request.query_string, "query string")
    caller = rooms.access.who(presented(request, query))
    request.facts["key"] = caller.key_id
    require_management(caller)
    return caller, query
