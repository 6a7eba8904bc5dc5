"""The response headers that describe an answer: freshness, row count, truncation and timing."""

from collections.abc import Iterable

from cordwood.model.endpoint import Endpoint
from cordwood.serve.answer import Answer, Outcome
from cordwood.serve.cached_answers import lifetime_seconds
from cordwood.serve.jobs import Finished, Receipt
from cordwood.serve.rate_limiter import Allowance
from cordwood.web.asgi import Header

VARY: Header = (b"vary", b"Authorization, X-API-KEY, Accept, Accept-Encoding, LF-ENDPOINT-REDACT-PII")
FORWARDED = {
    Outcome.MISS: b"cordwood; fwd=miss; stored",
    Outcome.COLLAPSED: b"cordwood; fwd=miss; collapsed",
    Outcome.REQUESTED: b"cordwood; fwd=request; stored",
    Outcome.UNCACHED: b"cordwood; fwd=miss",
}


def standing_headers(endpoint: Endpoint, receipt: Receipt) -> list[Header]:
    """Return the headers that stay the same as long as the answer is cached."""
    headers = [
        VARY,
        (b"cache-control", _cache_control(endpoint) if endpoint.cache_seconds else b"private, no-cache"),
        (b"cordwood-rows", b"%d" % receipt.rows),
        (b"cordwood-revision", receipt.revision.encode()),
    ]
    if receipt.truncated:
        headers.append((b"cordwood-truncated", receipt.truncated.encode()))
    headers += [(b"cordwood-notice", _header_text(notice)) for notice in receipt.notices]
    return headers


def moving_head(answer: Answer, endpoint: Endpoint, receipt: Receipt, seconds: float) -> bytes:
    """Render the headers that differ between responses with the same cached answer."""
    aged = b"age: %d\r\n" % answer.age_seconds if endpoint.cache_seconds else b""
    return b"cache-status: %b\r\n%bserver-timing: %b, total;dur=%.3f\r\n" % (
        _cache_status(answer, endpoint),
        aged,
        receipt.timing,
        seconds * 1000,
    )


def streamed_headers(answer: Answer, endpoint: Endpoint) -> list[Header]:
    """Return the headers that are known before the last row."""
    return [VARY, (b"cache-control", b"private, no-store"), (b"cache-status", _cache_status(answer, endpoint))]


def ignored_headers(names: Iterable[str]) -> list[Header]:
    """Return a notice for each request parameter that was ignored."""
    return [(b"cordwood-notice", _header_text(f"parameter ignored: {name}")) for name in names]


def rate_headers(allowance: Allowance) -> list[Header]:
    policy = b'"key";q=%d;w=%d' % (allowance.quota, allowance.window_seconds)
    left = b'"key";r=%d;t=%d' % (allowance.remaining, -(-allowance.full_in_seconds // 1))
    return [(b"ratelimit-policy", policy), (b"ratelimit", left)]


def facts(answer: Answer, receipt: Receipt) -> dict[str, object]:
    """Return the receipt as fields of the log."""
    return {
        "cache": answer.outcome.value,
        "age_seconds": answer.age_seconds,
        "rows": receipt.rows,
        "truncated": receipt.truncated or "",
        "compile_seconds": receipt.compile_seconds,
        "engine_seconds": receipt.engine_seconds,
        "revision": receipt.revision,
        "notices": receipt.notices,
    }


def etag(finished: Finished, coding: str | None) -> bytes:
    """Return a strong ETag, which depends on the content coding."""
    return f'"{finished.etag}-{coding}"'.encode() if coding else f'"{finished.etag}"'.encode()


def _cache_control(endpoint: Endpoint) -> bytes:
    """Return Cache-Control. With the `Age` header it gives the remaining lifetime."""
    fresh = lifetime_seconds(endpoint)
    control = f"private, max-age={int(fresh)}"
    if endpoint.cache_seconds > fresh:
        control += f", stale-while-revalidate={int(endpoint.cache_seconds - fresh)}"
    return control.encode()


def _cache_status(answer: Answer, endpoint: Endpoint) -> bytes:
    forwarded = FORWARDED.get(answer.outcome)
    if forwarded is not None:
        return forwarded
    left = max(0, int(endpoint.cache_seconds - answer.age_seconds))
    if answer.outcome is Outcome.STALE:
        return b"cordwood; hit; ttl=%d; detail=stale" % left
    return b"cordwood; hit; ttl=%d" % left


def _header_text(text: str) -> bytes:
    """Return printable ASCII, because names from events may contain anything."""
    return text.encode("ascii", "backslashreplace").translate(None, bytes(range(32)) + b"\x7f")
