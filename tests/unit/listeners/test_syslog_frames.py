"""Splitting of a syslog stream into messages, in both framings and for any chunk size."""

import pytest

from cordwood.ingest.formats.syslog import SyslogMessage
from cordwood.listeners.syslog import SyslogFrames

MAX_BYTES = 10_000
ONE, TWO, LONG = b"<13>1 - h a - - - one", b"<13>1 - h a - - - two\nlines", b"<13>1 - h a - - - " + b"x" * 3 * MAX_BYTES


def counted(*messages: bytes) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


def split(data: bytes, size: int) -> list[tuple[bytes, bool]]:
    frames = SyslogFrames(MAX_BYTES)
    found: list[SyslogMessage] = []
    for at in range(0, len(data), size):
        found += frames.feed(data[at : at + size])
        assert frames.held_bytes <= MAX_BYTES + size
    return [(message.data[:40], message.is_cut) for message in (*found, *frames.finish())]


@pytest.mark.parametrize("size", [1, 5, 4000, 10**6])
@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (ONE + b"\n" + ONE + b"\r\n\n" + ONE, [(ONE, False), (ONE + b"\r", False), (ONE, False)]),
        (counted(ONE, TWO, ONE), [(ONE, False), (TWO, False), (ONE, False)]),
        (counted(ONE) + b"\n" + counted(TWO) + b"\n", [(ONE, False), (TWO, False)]),
        (LONG + b"\n" + ONE + b"\n", [(LONG[:40], True), (ONE, False)]),
        (counted(ONE, LONG, TWO), [(ONE, False), (LONG[:40], True), (TWO, False)]),
        (ONE + b"\n12 monkeys\n", [(ONE, False), (b"12 monkeys", False)]),
        (counted(ONE) + b"no count\n" + counted(TWO), [(ONE, False), (b"no count", False), (TWO, False)]),
        (counted(ONE) + b"9999999999 x\n" + counted(TWO), [(ONE, False), (b"9999999999 x", False), (TWO, False)]),
        (counted(ONE) + b"100 <13>cut off", [(ONE, False)]),
        (b"\n\0 \n", []),
        (b"", []),
    ],
    ids=[
        "lines",
        "counts",
        "counts and line ends",
        "a long line",
        "a large count",
        "a line that begins with a digit",
        "a count that is missing",
        "a count of too many digits",
        "an end within a message",
        "nothing between line ends",
        "nothing",
    ],
)
def test_a_stream_is_split_into_messages(data: bytes, messages: list[tuple[bytes, bool]], size: int) -> None:
    assert split(data, size) == messages


def test_an_endless_line_is_skipped_in_bounded_memory() -> None:
    frames = SyslogFrames(MAX_BYTES)
    found = [one for _ in range(100) for one in frames.feed(b"x" * MAX_BYTES)]
    assert [one.is_cut for one in found] == [True]
    assert frames.held_bytes <= MAX_BYTES
    assert [one.data for one in frames.feed(b"\n<13>x\n")] == [b"<13>x"]
