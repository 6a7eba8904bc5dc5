"""Answer a saved query: parse the request, get the answer, and render the response. Has the fast path for repeats."""

import time

from cordwood.access import require_query
from cordwood.model.caller import Caller
from cordwood.serve.ask import Ask
from cordwood.serve.rate_limiter import Allowance
from cordwood.web.asgi import Request, Response
from cordwood.web.ask import read_ask
from cordwood.web.codings import chosen_coding
from cordwood.web.connection import while_connected
from cordwood.web.credentials import account_of, presented
from cordwood.web.deliver import delivered, is_at_hand, whole
from cordwood.web.named import existing_endpoint
from cordwood.web.options import WebOptions
from cordwood.web.recall import Recall, Remembered
from cordwood.web.receipt import ignored_headers, rate_headers
from cordwood.web.standing import Rooms
from cordwood.web.texts import pairs


async def answer_query(request: Request, rooms: Rooms, options: WebOptions, address: str, recall: Recall) -> Response:
    began = time.perf_counter()
    query = pairs(request.query_string, "query string")
    key = presented(request, query)
    found = rooms.catalog.endpoint(address)
    caller = rooms.access.visitor(key, found, address)
    request.facts["key"] = caller.key_id
    require_query(caller, found)
    endpoint = found or existing_endpoint(rooms, address)
    request.facts["endpoint"] = endpoint.name
    allowance = rooms.answers.admit(caller, account_of(request, caller))
    ask = await read_ask(request, endpoint, caller, query, options)
    digest = rooms.answers.digest_of(ask)
    answer = None if digest is None else rooms.answers.cached(digest)
    if answer is None:
        answer = await while_connected(request, rooms.answers.answer(ask))
    if digest is not None:
        coding = chosen_coding(request.joined(b"accept-encoding"))
        recall.keep(request, Remembered(address, key, ask, digest, coding))
    return _with_rate(_with_ignored(await delivered(request, ask, answer, began), ask), allowance)


def answer_recalled(request: Request, rooms: Rooms, recall: Recall) -> Response | None:
    """Answer a repeated request from the caches; return None if it has to take the full path."""
    remembered = recall.find(request)
    if remembered is None:
        return None
    began = time.perf_counter()
    request.route = "query"
    ask = remembered.ask
    if rooms.catalog.endpoint(remembered.address) is not ask.endpoint:
        return None
    if _caller(rooms, remembered) != ask.caller:
        return None
    answer = rooms.answers.cached(remembered.digest)
    if answer is None or not is_at_hand(answer, remembered.coding):
        return None
    request.facts["key"] = ask.caller.key_id
    request.facts["endpoint"] = ask.endpoint.name
    allowance = rooms.answers.admit(ask.caller, account_of(request, ask.caller))
    return _with_rate(_with_ignored(whole(request, ask, answer, remembered.coding, began), ask), allowance)


def _caller(rooms: Rooms, remembered: Remembered) -> Caller:
    return rooms.access.visitor(remembered.presented, remembered.ask.endpoint, remembered.address)


def _with_ignored(response: Response, ask: Ask) -> Response:
    response.headers += ignored_headers(ask.ignored)
    return response


def _with_rate(response: Response, allowance: Allowance | None) -> Response:
    if allowance is not None:
        response.headers += rate_headers(allowance)
    return response
