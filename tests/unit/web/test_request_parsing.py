"""Parsing of requests: query strings, Accept headers, content codings and bodies."""

import asyncio
import gzip
import zlib
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import (
    BacklogFull,
    BadBody,
    BadParameter,
    BodyTooLarge,
    NotAcceptable,
    RequestTooSlow,
    UnsupportedMediaType,
)
from cordwood.ingest.limits import BodyMemoryBudget
from cordwood.web import request_body
from cordwood.web.asgi import (
    COMPRESSOR_FACTORIES_BY_CODING,
    Message,
    Request,
    choose_content_coding,
    compress_body,
    parse_urlencoded,
)
from cordwood.web.encode import choose_format
from cordwood.web.request_body import inflate, read_body
from cordwood.web.services import EVENT_BODY_BOUNDS

MEBIBYTE = 2**20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "2"}),
        (b"a=%C3%A9+x%2B", {"a": "é x+"}),
        (b"a", {"a": ""}),
        (b"a=b=c", {"a": "b=c"}),
        (b"=x&&", {"": "x"}),
        (b"a%20b=1", {"a b": "1"}),
        (b"sql=select%0A1", {"sql": "select\n1"}),
    ],
)
def test_query_strings_are_decoded_as_browsers_encode_them(text: bytes, expected: dict[str, str]) -> None:
    assert parse_urlencoded(text, "query string") == expected


@pytest.mark.parametrize("text", [b"a=%", b"a=%z1", b"a=%1", b"%%=1", b"a=%ff", b"a=%C3"])
def test_broken_percent_encodings_are_refused(text: bytes) -> None:
    with pytest.raises(BadParameter):
        parse_urlencoded(text, "query string")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/*", "json"),
        ("text/*", "csv"),
        ("text/csv", "csv"),
        ("TEXT/CSV; charset=utf-8", "csv"),
        ("application/json;q=0.2, text/csv;q=0.9", "csv"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "json"),
        ("application/jsonl", "ndjson"),
        ("application/pdf, application/x-ndjson;q=0.1", "ndjson"),
        ("application/json;q=broken, text/csv", "csv"),
    ],
)
def test_the_preferred_available_format_is_chosen(accept: str, expected: str) -> None:
    assert choose_format(accept, None).name == expected


@pytest.mark.parametrize("accept", ["application/pdf", "application/json;q=0", "image/*"])
def test_an_unavailable_format_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        choose_format(accept, None)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", None),
        ("identity", None),
        ("br", None),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("zstd, gzip", "zstd"),
        ("gzip;q=0.9, zstd;q=0.8", "gzip"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("identity;q=1, gzip;q=0.5", None),
        ("gzip;q=x", None),
    ],
)
def test_the_preferred_available_coding_is_chosen(accepted: str, coding: str | None) -> None:
    assert choose_content_coding(accepted) == coding


@pytest.mark.parametrize("coding", list(COMPRESSOR_FACTORIES_BY_CODING))
@given(chunks=st.lists(st.binary(min_size=1, max_size=200), max_size=8))
def test_compressed_bodies_are_inflated_whole_or_in_chunks(coding: str, chunks: list[bytes]) -> None:
    complete_body = b"".join(chunks)
    compressor = COMPRESSOR_FACTORIES_BY_CODING[coding]()
    in_chunks = b"".join([compressor.compress_chunk(chunk) for chunk in chunks]) + compressor.finish()
    assert (
        inflate(compress_body(complete_body, coding), coding, MEBIBYTE)
        == inflate(in_chunks, coding, MEBIBYTE)
        == complete_body
    )


@pytest.mark.parametrize("coding", list(COMPRESSOR_FACTORIES_BY_CODING))
def test_each_compressed_chunk_can_be_inflated_at_once(coding: str) -> None:
    readers = {"gzip": zlib.decompressobj(wbits=31).decompress, "zstd": zstd.ZstdDecompressor().decompress}
    read: Callable[[bytes], bytes] = readers[coding]
    compressor = COMPRESSOR_FACTORIES_BY_CODING[coding]()
    for chunk in (b"first\n", b"second\n"):
        assert read(compressor.compress_chunk(chunk)) == chunk


@pytest.mark.parametrize(
    ("compress", "codings"),
    [
        (gzip.compress, "gzip"),
        (gzip.compress, " X-GZIP "),
        (zlib.compress, "deflate"),
        (lambda body: zlib.compress(body, wbits=-15), "deflate"),
        (zstd.compress, "zstd"),
        (lambda body: zstd.compress(gzip.compress(body)), "gzip, zstd"),
        (lambda body: zstd.compress(body[:3]) + zstd.compress(body[3:]), "zstd"),
        (bytes, "identity"),
    ],
)
def test_bodies_in_any_coding_are_inflated(compress: Callable[[bytes], bytes], codings: str) -> None:
    assert inflate(compress(b"events" * 100_000), codings, MEBIBYTE) == b"events" * 100_000


@pytest.mark.parametrize(("compress", "coding"), [(gzip.compress, "gzip"), (zstd.compress, "zstd")])
def test_a_body_may_inflate_up_to_its_limit(compress: Callable[[bytes], bytes], coding: str) -> None:
    assert len(inflate(compress(bytes(MEBIBYTE)), coding, MEBIBYTE)) == MEBIBYTE
    with pytest.raises(BodyTooLarge):
        inflate(compress(bytes(MEBIBYTE + 1)), coding, MEBIBYTE)


@pytest.mark.parametrize(
    "body", [b"plain", gzip.compress(b"x" * 100, mtime=0)[:-4], gzip.compress(b"x", mtime=0) + b"rest"]
)
def test_broken_compression_is_a_bad_body(body: bytes) -> None:
    with pytest.raises(BadBody):
        inflate(body, "gzip", MEBIBYTE)


def test_an_unknown_coding_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(UnsupportedMediaType) as raised:
        inflate(b"x", "br", MEBIBYTE)
    assert "zstd" in str(raised.value.hint)


async def delay_message(seconds: float, message: Message) -> Message:
    await asyncio.sleep(seconds)
    return message


def slow_request(*chunks: tuple[float, bytes]) -> Request:
    """Return a POST request whose body arrives in chunks, each after a pause, and does not end."""
    coming = iter(chunks)

    async def receive() -> Message:
        seconds, chunk = next(coming, (60.0, b""))
        return await delay_message(seconds, {"type": "http.request", "body": chunk, "more_body": True})

    return Request({"method": "POST", "raw_path": b"/", "query_string": b"", "headers": []}, receive)


def test_a_stalled_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "MAX_READ_STALL_SECONDS", 0.05)
    with pytest.raises(RequestTooSlow):
        asyncio.run(read_body(slow_request((0.0, b"a"), (30.0, b"b")), EVENT_BODY_BOUNDS))


def test_a_steady_but_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_RATE_GRACE_SECONDS", 0.05)
    drips = [(0.01, b"a")] * 1000
    with pytest.raises(RequestTooSlow):
        asyncio.run(read_body(slow_request(*drips), EVENT_BODY_BOUNDS))


def test_a_revoked_body_is_refused_while_it_waits() -> None:
    async def wait_until_abandoned(budget: BodyMemoryBudget) -> None:
        with budget.open_reservation("a") as stalled, budget.open_reservation("b") as other:
            reading = asyncio.ensure_future(read_body(slow_request((0.0, b"x" * 80)), EVENT_BODY_BOUNDS, stalled))
            await asyncio.sleep(0.05)
            other.reserve(60)
            await reading

    now = iter(range(0, 1000, 10))
    with pytest.raises(BacklogFull):
        asyncio.run(asyncio.wait_for(wait_until_abandoned(BodyMemoryBudget(100, lambda: float(next(now)))), 5))
