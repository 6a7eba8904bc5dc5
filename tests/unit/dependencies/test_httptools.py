"""Internals of httptools on which `web/http_protocol.py` relies: upgrade requests, and refusals of bad headers."""

from collections.abc import Callable

import httptools
import pytest

PLAIN_REQUEST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
UPGRADE_REQUEST = b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"


class RecordedCalls:
    """A protocol that records the parser's calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *arguments: self.calls.append((name, *arguments))


def test_the_parser_stops_after_the_head_of_an_upgrade_request() -> None:
    parser = httptools.HttpRequestParser(RecordedCalls())
    with pytest.raises(httptools.HttpParserUpgrade) as stopped:
        parser.feed_data(memoryview(UPGRADE_REQUEST))
    assert UPGRADE_REQUEST[stopped.value.args[0] :] == b"{}"


def test_the_offset_counts_from_the_last_chunk() -> None:
    parser = httptools.HttpRequestParser(RecordedCalls())
    parser.feed_data(UPGRADE_REQUEST[:20])
    with pytest.raises(httptools.HttpParserUpgrade) as stopped:
        parser.feed_data(UPGRADE_REQUEST[20:])
    assert UPGRADE_REQUEST[20:][stopped.value.args[0] :] == b"{}"


def test_an_upgrade_is_not_a_parser_error() -> None:
    assert not issubclass(httptools.HttpParserUpgrade, httptools.HttpParserError)
    assert issubclass(httptools.HttpParserCallbackError, httptools.HttpParserError)


def test_an_upgrade_request_needs_both_headers() -> None:
    class UpgradeChecks(RecordedCalls):
        def on_headers_complete(self) -> None:
            upgrades.append(parser.should_upgrade())

    upgrades: list[bool] = []
    for sent in (UPGRADE_REQUEST, PLAIN_REQUEST, UPGRADE_REQUEST.replace(b"Upgrade: h2c\r\n", b"")):
        parser = httptools.HttpRequestParser(UpgradeChecks())
        try:
            parser.feed_data(sent)
        except httptools.HttpParserUpgrade:
            continue
    assert upgrades == [True, False, False]


@pytest.mark.parametrize("value", [b"b\r\n c", b"b\nc", b"b\rc"])
def test_a_line_break_in_a_header_value_is_refused(value: bytes) -> None:
    recorded = RecordedCalls()
    with pytest.raises(httptools.HttpParserError):
        httptools.HttpRequestParser(recorded).feed_data(b"GET / HTTP/1.1\r\nA: " + value + b"\r\n\r\n")
    assert not [call for call in recorded.calls if call[0] == "on_header" and call[2] != b"b"]


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Content-Length: +2",
    ],
)
def test_conflicting_body_lengths_are_refused(lengths: bytes) -> None:
    parser = httptools.HttpRequestParser(RecordedCalls())
    with pytest.raises(httptools.HttpParserError):
        parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + b"\r\n\r\n{}")


def test_the_methods_that_are_used_exist() -> None:
    parser = httptools.HttpRequestParser(RecordedCalls())
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    parser.feed_data(PLAIN_REQUEST)
    assert (parser.get_method(), parser.get_http_version(), parser.should_keep_alive()) == (b"POST", "1.1", True)
