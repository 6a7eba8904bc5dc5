"""Splitting of a syslog stream into messages, in both framings and for chunks of any size."""

import pytest

from cordwood.ingest.formats.syslog_frames import SyslogFrameDecoder, SyslogMessage

MAX_BYTES = 10_000
FIRST_MESSAGE, SECOND_MESSAGE, LONG_MESSAGE = (
    b"<13>1 - h a - - - one",
    b"<13>1 - h a - - - two\nlines",
    b"<13>1 - h a - - - " + b"x" * 3 * MAX_BYTES,
)


def with_octet_counts(*messages: bytes) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


def split_stream(data: bytes, size: int) -> list[tuple[bytes, bool]]:
    frames = SyslogFrameDecoder(MAX_BYTES)
    items: list[SyslogMessage] = []
    for at in range(0, len(data), size):
        items += frames.feed(data[at : at + size])
        assert frames.buffered_bytes <= MAX_BYTES + size
    return [(message.data[:40], message.is_truncated) for message in (*items, *frames.finish())]


@pytest.mark.parametrize("size", [1, 5, 4000, 10**6])
@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (
            FIRST_MESSAGE + b"\n" + FIRST_MESSAGE + b"\r\n\n" + FIRST_MESSAGE,
            [(FIRST_MESSAGE, False), (FIRST_MESSAGE + b"\r", False), (FIRST_MESSAGE, False)],
        ),
        (
            with_octet_counts(FIRST_MESSAGE, SECOND_MESSAGE, FIRST_MESSAGE),
            [(FIRST_MESSAGE, False), (SECOND_MESSAGE, False), (FIRST_MESSAGE, False)],
        ),
        (
            with_octet_counts(FIRST_MESSAGE) + b"\n" + with_octet_counts(SECOND_MESSAGE) + b"\n",
            [(FIRST_MESSAGE, False), (SECOND_MESSAGE, False)],
        ),
        (LONG_MESSAGE + b"\n" + FIRST_MESSAGE + b"\n", [(LONG_MESSAGE[:40], True), (FIRST_MESSAGE, False)]),
        (
            with_octet_counts(FIRST_MESSAGE, LONG_MESSAGE, SECOND_MESSAGE),
            [(FIRST_MESSAGE, False), (LONG_MESSAGE[:40], True), (SECOND_MESSAGE, False)],
        ),
        (FIRST_MESSAGE + b"\n12 monkeys\n", [(FIRST_MESSAGE, False), (b"12 monkeys", False)]),
        (
            with_octet_counts(FIRST_MESSAGE) + b"no count\n" + with_octet_counts(SECOND_MESSAGE),
            [(FIRST_MESSAGE, False), (b"no count", False), (SECOND_MESSAGE, False)],
        ),
        (
            with_octet_counts(FIRST_MESSAGE) + b"9999999999 x\n" + with_octet_counts(SECOND_MESSAGE),
            [(FIRST_MESSAGE, False), (b"9999999999 x", False), (SECOND_MESSAGE, False)],
        ),
        (with_octet_counts(FIRST_MESSAGE) + b"100 <13>cut off", [(FIRST_MESSAGE, False)]),
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
    assert split_stream(data, size) == messages


def test_an_endless_line_is_skipped_in_bounded_memory() -> None:
    frames = SyslogFrameDecoder(MAX_BYTES)
    items = [item for _ in range(100) for item in frames.feed(b"x" * MAX_BYTES)]
    assert [item.is_truncated for item in items] == [True]
    assert frames.buffered_bytes <= MAX_BYTES
    assert [item.data for item in frames.feed(b"\n<13>x\n")] == [b"<13>x"]
