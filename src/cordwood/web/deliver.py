"""Render an answer as an HTTP response: headers, compression, and conditional requests."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from cordwood.serve.answer import Answer
from cordwood.serve.ask import Ask
from cordwood.serve.jobs import Finished
from cordwood.serve.response_stream import StreamedAnswer
from cordwood.web.asgi import Header, Request, Response, rendered
from cordwood.web.codings import WORTH_IT_BYTES, chosen_coding, compressed, compressed_pieces
from cordwood.web.cors import ON_EVERY_ANSWER
from cordwood.web.receipt import etag, facts, moving_head, standing_headers, streamed_headers

# A larger body is compressed in a thread instead of the event loop.
COMPRESSED_HERE_BYTES = 64 * 1024


async def delivered(request: Request, ask: Ask, answer: Answer, began: float) -> Response:
    coding = chosen_coding(request.joined(b"accept-encoding"))
    if not is_at_hand(answer, coding):
        await asyncio.to_thread(answer.finished.coded, coding or "", compressed)
    if isinstance(answer.body, StreamedAnswer):
        return _streamed(request, ask, answer, answer.body, coding)
    return whole(request, ask, answer, coding, began)


def is_at_hand(answer: Answer, coding: str | None) -> bool:
    """Return whether the response can be made without a compression that would block the event loop."""
    if coding is None or isinstance(answer.body, StreamedAnswer):
        return True
    return len(answer.body.body) < COMPRESSED_HERE_BYTES or coding in answer.body.codings


def whole(request: Request, ask: Ask, answer: Answer, coding: str | None, began: float) -> Response:
    finished = answer.finished
    if len(finished.body) < WORTH_IT_BYTES:
        coding = None
    request.facts.update(facts(answer, finished.receipt))
    moving = moving_head(answer, ask.endpoint, finished.receipt, time.perf_counter() - began)
    head = finished.heads.get(coding or "")
    if head is None:
        head = finished.heads[coding or ""] = _head(ask, finished, coding)
        finished.size += len(head)
    if b"if-none-match" in request.headers and _is_known(request, etag(finished, coding)):
        return Response(304, [], b"", moving + head)
    body = finished.body if coding is None else finished.coded(coding, compressed)
    return Response(200, [], body, moving + head)


def _head(ask: Ask, finished: Finished, coding: str | None) -> bytes:
    headers: list[Header] = [(b"content-type", ask.format.media_type.encode()), (b"etag", etag(finished, coding))]
    if coding is not None:
        headers.append((b"content-encoding", coding.encode()))
    return rendered([*headers, *standing_headers(ask.endpoint, finished.receipt), *ON_EVERY_ANSWER])


def _streamed(request: Request, ask: Ask, answer: Answer, streamed: StreamedAnswer, coding: str | None) -> Response:
    pieces = _noted(request, streamed, answer)
    headers = [(b"content-type", ask.format.media_type.encode()), *streamed_headers(answer, ask.endpoint)]
    if coding is None:
        return Response(200, headers, pieces)
    headers.append((b"content-encoding", coding.encode()))
    return Response(200, headers, compressed_pieces(pieces, coding))


async def _noted(request: Request, streamed: StreamedAnswer, answer: Answer) -> AsyncGenerator[bytes, None]:
    """Yield the chunks; at the end, log what the receipt says, since the headers were already sent."""
    async with aclosing(streamed.pieces()) as pieces:
        async for piece in pieces:
            yield piece
    if streamed.receipt is not None:
        request.facts.update(facts(answer, streamed.receipt))


def _is_known(request: Request, tag: bytes) -> bool:
    known = (candidate.strip().removeprefix("W/") for candidate in request.joined(b"if-none-match").split(","))
    return any(candidate in ("*", tag.decode()) for candidate in known)
