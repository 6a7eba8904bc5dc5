"""Render answers as HTTP responses, with the receipt as headers, compression, and conditional requests."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from cordwood.model.definitions import Endpoint
from cordwood.serve.admission import RequestAllowance
from cordwood.serve.answer import Answer, CacheOutcome
from cordwood.serve.cached_answers import max_age_seconds
from cordwood.serve.jobs import AnswerReceipt, CompleteAnswer, StreamedAnswer
from cordwood.serve.paging import CursorCodec
from cordwood.serve.query_request import QueryRequest
from cordwood.web.asgi import (
    CORS_HEADERS,
    MIN_BODY_BYTES_TO_COMPRESS,
    Header,
    Request,
    Response,
    choose_content_coding,
    compress_body,
    compress_chunks,
    render_headers,
)

VARY_HEADER: Header = (b"vary", b"Authorization, X-API-KEY, Accept, Accept-Encoding, LF-ENDPOINT-REDACT-PII")
CACHE_STATUS_BY_OUTCOME = {
    CacheOutcome.MISS: b"cordwood; fwd=miss; stored",
    CacheOutcome.COLLAPSED: b"cordwood; fwd=miss; collapsed",
    CacheOutcome.BYPASS_REQUESTED: b"cordwood; fwd=request; stored",
    CacheOutcome.UNCACHED: b"cordwood; fwd=miss",
}


def headers_of_cached_answer(endpoint: Endpoint, receipt: AnswerReceipt) -> list[Header]:
    """Return the headers that are the same in all responses with the same cached answer."""
    return [
        VARY_HEADER,
        (b"cache-control", _cache_control(endpoint) if endpoint.cache_seconds else b"private, no-cache"),
        (b"cordwood-revision", receipt.endpoint_revision.encode()),
        *_headers_after_last_row(receipt),
    ]


def _headers_after_last_row(receipt: AnswerReceipt) -> list[Header]:
    """Return the headers whose values are known only after the last row."""
    headers = [(b"cordwood-rows", b"%d" % receipt.row_count)]
    if receipt.truncated_by:
        headers.append((b"cordwood-truncated", receipt.truncated_by.encode()))
    headers += [(b"cordwood-notice", escape_header_text(notice)) for notice in receipt.notices]
    return headers


def render_varying_response_headers(
    answer: Answer, endpoint: Endpoint, receipt: AnswerReceipt, seconds: float
) -> bytes:
    """Return the headers, such as Age, that can differ between responses with the same cached answer."""
    aged = b"age: %d\r\n" % answer.age_seconds if endpoint.cache_seconds else b""
    return b"cache-status: %b\r\n%bserver-timing: %b, total;dur=%.3f\r\n" % (
        _cache_status(answer, endpoint),
        aged,
        receipt.server_timing,
        seconds * 1000,
    )


def streamed_answer_headers(answer: Answer, endpoint: Endpoint) -> list[Header]:
    """Return the headers that are sent before the rows of a streamed answer. They announce trailers after the rows."""
    return [
        VARY_HEADER,
        (b"cache-control", b"private, no-store"),
        (b"cache-status", _cache_status(answer, endpoint)),
        (b"trailer", b"Cordwood-Rows, Cordwood-Truncated, Cordwood-Next, Cordwood-Notice"),
    ]


def ignored_parameter_headers(names: Iterable[str]) -> list[Header]:
    """Return a notice header for each parameter of the request that was ignored."""
    return [(b"cordwood-notice", escape_header_text(f"parameter ignored: {name}")) for name in names]


def _next_page_headers(
    query_request: QueryRequest, receipt: AnswerReceipt, cursors: CursorCodec | None
) -> list[Header]:
    """Return the header with the cursor of the next page, or nothing if there is no next page.

    The cursor is signed, and valid only for the same request.
    """
    if receipt.next_position is None or cursors is None:
        return []
    return [(b"cordwood-next", cursors.encode(query_request, receipt.next_position).encode())]


def rate_limit_headers(allowance: RequestAllowance) -> list[Header]:
    policy = b'"key";q=%d;w=%d' % (allowance.request_quota, allowance.window_seconds)
    left = b'"key";r=%d;t=%d' % (allowance.remaining_requests, -(-allowance.seconds_until_full // 1))
    return [(b"ratelimit-policy", policy), (b"ratelimit", left)]


def receipt_log_fields(answer: Answer, receipt: AnswerReceipt) -> dict[str, object]:
    """Return the fields that the request log takes from the receipt."""
    return {
        "cache": answer.cache_outcome.value,
        "age_seconds": answer.age_seconds,
        "rows": receipt.row_count,
        "truncated": receipt.truncated_by or "",
        "compile_seconds": receipt.compile_seconds,
        "engine_seconds": receipt.engine_seconds,
        "revision": receipt.endpoint_revision,
        "notices": receipt.notices,
    }


def answer_etag(finished: CompleteAnswer, coding: str | None) -> bytes:
    """Return a strong ETag of the answer, which differs between content codings."""
    return f'"{finished.etag}-{coding}"'.encode() if coding else f'"{finished.etag}"'.encode()


def _cache_control(endpoint: Endpoint) -> bytes:
    """Return the value of Cache-Control. Its `max-age`, like `Age`, counts from when the answer was computed."""
    fresh = max_age_seconds(endpoint)
    control = f"private, max-age={int(fresh)}"
    if endpoint.cache_seconds > fresh:
        control += f", stale-while-revalidate={int(endpoint.cache_seconds - fresh)}"
    return control.encode()


def _cache_status(answer: Answer, endpoint: Endpoint) -> bytes:
    forwarded = CACHE_STATUS_BY_OUTCOME.get(answer.cache_outcome)
    if forwarded is not None:
        return forwarded
    left = max(0, int(endpoint.cache_seconds - answer.age_seconds))
    if answer.cache_outcome is CacheOutcome.STALE:
        return b"cordwood; hit; ttl=%d; detail=stale" % left
    return b"cordwood; hit; ttl=%d" % left


def escape_header_text(text: str) -> bytes:
    """Escape non-ASCII characters and remove control characters, because names from events may contain both."""
    return text.encode("ascii", "backslashreplace").translate(None, bytes(range(32)) + b"\x7f")


# A body of at least this size is compressed in a thread, so that the compression does not block the event loop.
MAX_EVENT_LOOP_COMPRESSION_BYTES = 64 * 1024


async def render_answer(
    request: Request, query_request: QueryRequest, answer: Answer, began: float, cursors: CursorCodec | None = None
) -> Response:
    """Return the response to a query. With `cursors`, the response has the cursor of the next page if there is one."""
    coding = choose_content_coding(request.joined_header(b"accept-encoding"))
    if not can_render_on_event_loop(answer, coding):
        await asyncio.to_thread(answer.complete_answer.compressed_body, coding or "", compress_body)
    if isinstance(answer.body, StreamedAnswer):
        return _render_streamed_answer(request, query_request, answer, answer.body, coding, cursors)
    return render_complete_answer(request, query_request, answer, coding, began, cursors)


def can_render_on_event_loop(answer: Answer, coding: str | None) -> bool:
    """Return whether the response can be rendered on the event loop, without a compression that takes long."""
    if coding is None or isinstance(answer.body, StreamedAnswer):
        return True
    return len(answer.body.body) < MAX_EVENT_LOOP_COMPRESSION_BYTES or coding in answer.body.body_by_coding


def render_complete_answer(
    request: Request,
    query_request: QueryRequest,
    answer: Answer,
    coding: str | None,
    began: float,
    cursors: CursorCodec | None,
) -> Response:
    finished = answer.complete_answer
    if len(finished.body) < MIN_BODY_BYTES_TO_COMPRESS:
        coding = None
    request.log_fields.update(receipt_log_fields(answer, finished.receipt))
    moving = render_varying_response_headers(
        answer, query_request.endpoint, finished.receipt, time.perf_counter() - began
    )
    head = finished.headers_by_coding.get(coding or "")
    if head is None:
        head = finished.headers_by_coding[coding or ""] = _render_receipt_headers(query_request, finished, coding)
        finished.size_bytes += len(head)
    next_page = _next_page_headers(query_request, finished.receipt, cursors)
    if b"if-none-match" in request.headers and _matches_etag(request, answer_etag(finished, coding)):
        return Response(304, next_page, b"", moving + head)
    body = finished.body if coding is None else finished.compressed_body(coding, compress_body)
    return Response(200, next_page, body, moving + head)


def _render_receipt_headers(query_request: QueryRequest, finished: CompleteAnswer, coding: str | None) -> bytes:
    headers: list[Header] = [
        (b"content-type", query_request.format.media_type.encode()),
        (b"etag", answer_etag(finished, coding)),
    ]
    if coding is not None:
        headers.append((b"content-encoding", coding.encode()))
    return render_headers(
        [*headers, *headers_of_cached_answer(query_request.endpoint, finished.receipt), *CORS_HEADERS]
    )


def _render_streamed_answer(
    request: Request,
    query_request: QueryRequest,
    answer: Answer,
    streamed: StreamedAnswer,
    coding: str | None,
    cursors: CursorCodec | None,
) -> Response:
    def compute_trailers() -> list[Header]:
        receipt = streamed.receipt
        if receipt is None:
            return []
        return [*_headers_after_last_row(receipt), *_next_page_headers(query_request, receipt, cursors)]

    pieces: AsyncIterator[bytes] = _chunks_recording_receipt(request, streamed, answer)
    headers = [
        (b"content-type", query_request.format.media_type.encode()),
        *streamed_answer_headers(answer, query_request.endpoint),
    ]
    if coding is not None:
        headers.append((b"content-encoding", coding.encode()))
        pieces = compress_chunks(pieces, coding)
    return Response(200, headers, pieces, trailers=compute_trailers)


async def _chunks_recording_receipt(
    request: Request, streamed: StreamedAnswer, answer: Answer
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a streamed answer. After the last row, add the receipt to the facts for the request log."""
    async with aclosing(streamed.chunks()) as pieces:
        async for piece in pieces:
            yield piece
    if streamed.receipt is not None:
        request.log_fields.update(receipt_log_fields(answer, streamed.receipt))


def _matches_etag(request: Request, tag: bytes) -> bool:
    known = (candidate.strip().removeprefix("W/") for candidate in request.joined_header(b"if-none-match").split(","))
    return any(candidate in ("*", tag.decode()) for candidate in known)
