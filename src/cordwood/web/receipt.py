"""What an answer says of itself in its headers: how fresh, how many rows, whether cut, and what it cost."""

from cordwood.model.endpoint import Endpoint
from cordwood.serve.answer import Answer, Outcome
from cordwood.serve.finished import Finished, Receipt
from cordwood.serve.freshness import lifetime_seconds
from cordwood.serve.rates import Allowance
from cordwood.web.asgi import Header

VARY: Header = (b"vary", b"Authorization, X-API-KEY, Accept, Accept-Encoding, LF-ENDPOINT-REDACT-PII")
FORWARDED = {
    Outcome.MISS: "cordwood; fwd=miss; stored",
    Outcome.COLLAPSED: "cordwood; fwd=miss; collapsed",
    Outcome.REQUESTED: "cordwood; fwd=request; stored",
    Outcome.UNCACHED: "cordwood; fwd=miss",
}


def freshness_headers(answer: Answer, endpoint: Endpoint) -> list[Header]:
    """What caches along the way may do with it, and what ours did."""
    if not endpoint.cache_seconds:
        return [VARY, (b"cache-control", b"private, no-cache"), (b"cache-status", _cache_status(answer, endpoint))]
    age = int(answer.age_seconds)
    return [
        VARY,
        (b"cache-control", _cache_control(endpoint)),
        (b"age", b"%d" % age),
        (b"cache-status", _cache_status(answer, endpoint)),
    ]


def receipt_headers(receipt: Receipt, seconds: float) -> list[Header]:
    headers = [
        (b"cordwood-rows", b"%d" % receipt.rows),
        (b"cordwood-revision", receipt.revision.encode()),
        (b"server-timing", _server_timing(receipt, seconds)),
    ]
    if receipt.truncated:
        headers.append((b"cordwood-truncated", receipt.truncated.encode()))
    headers += [(b"cordwood-notice", _header_text(notice)) for notice in receipt.notices]
    return headers


def rate_headers(allowance: Allowance) -> list[Header]:
    policy = b'"key";q=%d;w=%d' % (allowance.quota, allowance.window_seconds)
    left = b'"key";r=%d;t=%d' % (allowance.remaining, -(-allowance.full_in_seconds // 1))
    return [(b"ratelimit-policy", policy), (b"ratelimit", left)]


def facts(answer: Answer, receipt: Receipt) -> dict[str, object]:
    """The receipt for the log."""
    return {
        "cache": answer.outcome.value,
        "age_seconds": round(answer.age_seconds, 3),
        "rows": receipt.rows,
        "truncated": receipt.truncated or "",
        "compile_seconds": round(receipt.compile_seconds, 6),
        "engine_seconds": round(receipt.engine_seconds, 6),
        "revision": receipt.revision,
        "notices": receipt.notices,
    }


def etag(finished: Finished, coding: str | None) -> bytes:
    """Strong: another coding is another tag."""
    return f'"{finished.etag}-{coding}"'.encode() if coding else f'"{finished.etag}"'.encode()


def _cache_control(endpoint: Endpoint) -> bytes:
    """With `Age`, which stands beside it, this says how much longer the answer is good."""
    fresh = lifetime_seconds(endpoint)
    control = f"private, max-age={int(fresh)}"
    if endpoint.cache_seconds > fresh:
        control += f", stale-while-revalidate={int(endpoint.cache_seconds - fresh)}"
    return control.encode()


def _cache_status(answer: Answer, endpoint: Endpoint) -> bytes:
    if answer.outcome in FORWARDED:
        return FORWARDED[answer.outcome].encode()
    left = max(0, int(endpoint.cache_seconds - answer.age_seconds))
    stale = "; detail=stale" if answer.outcome is Outcome.STALE else ""
    return f"cordwood; hit; ttl={left}{stale}".encode()


def _server_timing(receipt: Receipt, seconds: float) -> bytes:
    return b"compile;dur=%.3f, engine;dur=%.3f, total;dur=%.3f" % (
        receipt.compile_seconds * 1000,
        receipt.engine_seconds * 1000,
        seconds * 1000,
    )


def _header_text(text: str) -> bytes:
    """Names from events may hold anything; a header holds printable ASCII."""
    return text.encode("ascii", "backslashreplace").translate(None, bytes(range(32)) + b"\x7f")
