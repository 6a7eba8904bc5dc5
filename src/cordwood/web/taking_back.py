"""Import exported events with a private key: they are stored unchanged, with their times of receipt."""

from cordwood.errors import Forbidden
from cordwood.model.caller import Caller
from cordwood.observe.observation import Ingested
from cordwood.observe.observer import Observer
from cordwood.web.asgi import Request, Response
from cordwood.web.body import read_body
from cordwood.web.credentials import uncounted_caller
from cordwood.web.ingest import logged
from cordwood.web.named import existing_stream
from cordwood.web.options import WebOptions
from cordwood.web.standing import Rooms


async def take_back(request: Request, rooms: Rooms, options: WebOptions, observer: Observer, name: str) -> Response:
    caller, _ = uncounted_caller(request, rooms)
    stream = existing_stream(rooms, name)
    request.facts["stream"] = stream.name
    rooms.answers.admit(caller)
    with rooms.intake.body_budget.reserve(caller.key_id) as reservation:
        body = await read_body(request, options.events, reservation)
        accepted = await rooms.intake.reimport(stream, body, _project(caller))
    observer.note(
        Ingested(stream=stream.name, accepted=accepted.accepted, duplicates=accepted.duplicates, late=accepted.late)
    )
    return logged(accepted)


def _project(caller: Caller) -> str | None:
    if caller.pins.keys() - {"project"}:
        raise Forbidden("This key is pinned to more than a project, and nothing else is known of an event.")
    return caller.pins.get("project")
