"""Answer a saved query: read who asks what, take the journey, and say how it went."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from cordwood.access import require_query
from cordwood.errors import UnknownEndpoint
from cordwood.model.endpoint import Endpoint
from cordwood.serve.answer import Answer
from cordwood.serve.ask import Ask
from cordwood.serve.finished import Finished
from cordwood.serve.stream import Streamed
from cordwood.web.asgi import Header, Request, Response
from cordwood.web.ask import read_ask
from cordwood.web.codings import WORTH_IT_BYTES, chosen_coding, compressed, compressed_pieces
from cordwood.web.connection import while_connected
from cordwood.web.credentials import presented
from cordwood.web.nearest import nearest
from cordwood.web.options import WebOptions
from cordwood.web.receipt import etag, facts, freshness_headers, rate_headers, receipt_headers
from cordwood.web.standing import Rooms
from cordwood.web.texts import pairs


async def answer_query(request: Request, rooms: Rooms, options: WebOptions, address: str) -> Response:
    began = time.perf_counter()
    query = pairs(request.query_string, "query string")
    endpoint = rooms.catalog.endpoint(address)
    caller = rooms.access.visitor(presented(request, query), endpoint, address)
    request.facts["key"] = caller.key_id
    require_query(caller, endpoint)
    endpoint = _existing(endpoint, address, rooms)
    request.facts["endpoint"] = endpoint.name
    allowance = rooms.answers.admit(caller)
    ask = await read_ask(request, endpoint, caller, query, options)
    answer = rooms.answers.kept(ask)
    if answer is None:
        answer = await while_connected(request, rooms.answers.answer(ask))
    response = _delivered(request, ask, answer, lambda: time.perf_counter() - began)
    if allowance is not None:
        response.headers += rate_headers(allowance)
    return response


def _existing(endpoint: Endpoint | None, address: str, rooms: Rooms) -> Endpoint:
    if endpoint is None:
        names = [known.name for known in rooms.catalog.endpoints()]
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=nearest(address, names))
    return endpoint


def _delivered(request: Request, ask: Ask, answer: Answer, elapsed: Callable[[], float]) -> Response:
    headers: list[Header] = [(b"content-type", ask.format.media_type.encode())]
    headers += freshness_headers(answer, ask.endpoint)
    coding = chosen_coding(request.joined(b"accept-encoding"))
    if not isinstance(answer.body, Finished):
        return _streamed(request, answer.body, answer, headers, coding)
    request.facts.update(facts(answer, answer.body.receipt))
    headers += receipt_headers(answer.body.receipt, elapsed())
    return _whole(request, answer.body, headers, coding)


def _whole(request: Request, finished: Finished, headers: list[Header], coding: str | None) -> Response:
    if len(finished.body) < WORTH_IT_BYTES:
        coding = None
    tag = etag(finished, coding)
    headers.append((b"etag", tag))
    if _is_known(request.joined(b"if-none-match"), tag.decode()):
        return Response(304, headers)
    if coding is None:
        return Response(200, headers, finished.body)
    headers.append((b"content-encoding", coding.encode()))
    return Response(200, headers, finished.coded(coding, compressed))


def _streamed(
    request: Request, streamed: Streamed, answer: Answer, headers: list[Header], coding: str | None
) -> Response:
    pieces = _noted(request, streamed, answer)
    if coding is None:
        return Response(200, headers, pieces)
    headers.append((b"content-encoding", coding.encode()))
    return Response(200, headers, compressed_pieces(pieces, coding))


async def _noted(request: Request, streamed: Streamed, answer: Answer) -> AsyncGenerator[bytes, None]:
    """The pieces; when they are out, what the receipt would have said goes to the log at least."""
    async with aclosing(streamed.pieces()) as pieces:
        async for piece in pieces:
            yield piece
    if streamed.receipt is not None:
        request.facts.update(facts(answer, streamed.receipt))


def _is_known(if_none_match: str, tag: str) -> bool:
    if not if_none_match:
        return False
    tags = {candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")}
    return tag in tags or "*" in tags
