"""What `web/http_protocol.py` uses of httptools: where its parser stops at an offer to upgrade, and what it then says."""

from collections.abc import Callable

import httptools
import pytest

PLAIN = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
OFFER = b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"


class Heard:
    """Every call of the parser, by name."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *said: self.calls.append((name, *said))


def test_it_stops_behind_the_head_of_an_offer_and_says_where() -> None:
    parser = httptools.HttpRequestParser(Heard())
    with pytest.raises(httptools.HttpParserUpgrade) as stopped:
        parser.feed_data(memoryview(OFFER))
    assert OFFER[stopped.value.args[0] :] == b"{}"


def test_it_says_where_in_the_piece_that_was_fed_last() -> None:
    parser = httptools.HttpRequestParser(Heard())
    parser.feed_data(OFFER[:20])
    with pytest.raises(httptools.HttpParserUpgrade) as stopped:
        parser.feed_data(OFFER[20:])
    assert OFFER[20:][stopped.value.args[0] :] == b"{}"


def test_to_stop_is_no_error() -> None:
    assert not issubclass(httptools.HttpParserUpgrade, httptools.HttpParserError)
    assert issubclass(httptools.HttpParserCallbackError, httptools.HttpParserError)


def test_an_offer_is_known_by_two_headers_when_the_head_is_whole() -> None:
    class Asked(Heard):
        def on_headers_complete(self) -> None:
            told.append(parser.should_upgrade())

    told: list[bool] = []
    for sent in (OFFER, PLAIN, OFFER.replace(b"Upgrade: h2c\r\n", b"")):
        parser = httptools.HttpRequestParser(Asked())
        try:
            parser.feed_data(sent)
        except httptools.HttpParserUpgrade:
            continue
    assert told == [True, False, False]


@pytest.mark.parametrize("value", [b"b\r\n c", b"b\nc", b"b\rc"])
def test_no_header_value_holds_the_end_of_a_line(value: bytes) -> None:
    heard = Heard()
    with pytest.raises(httptools.HttpParserError):
        httptools.HttpRequestParser(heard).feed_data(b"GET / HTTP/1.1\r\nA: " + value + b"\r\n\r\n")
    assert not [call for call in heard.calls if call[0] == "on_header" and call[2] != b"b"]


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Content-Length: +2",
    ],
)
def test_a_body_has_one_length(lengths: bytes) -> None:
    parser = httptools.HttpRequestParser(Heard())
    with pytest.raises(httptools.HttpParserError):
        parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + b"\r\n\r\n{}")


def test_what_is_asked_of_it_is_there() -> None:
    parser = httptools.HttpRequestParser(Heard())
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    parser.feed_data(PLAIN)
    assert (parser.get_method(), parser.get_http_version(), parser.should_keep_alive()) == (b"POST", "1.1", True)
