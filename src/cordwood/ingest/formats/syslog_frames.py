"""Splitting of syslog data into messages: by octet counts (RFC 6587, 3.4.1) or at line ends.

An octet count is a message's length in bytes, sent before the message.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from cordwood.ingest.formats.json import non_blank_lines
from cordwood.ingest.items import too_many_items_fault

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COUNT_BEFORE_PRIORITY_PATTERN: Final = re.compile(rb"(\d{1,7}) (?=<\d)")
_LEADING_OCTET_COUNT_PATTERN: Final = re.compile(r"\A\d{1,7} (?=<\d)")
_CUT_OCTET_COUNT_PATTERN: Final = re.compile(rb"\s*(?:\d{1,7}(?: <?)?)?")
_WHITESPACE_PATTERN: Final = re.compile(rb"\s*")

# The number of bytes that are stored of a message that is too long.
_KEPT_BYTES_OF_LONG_MESSAGE: Final = 4096
_OCTET_COUNT_PATTERN: Final = re.compile(rb"([1-9]\d{0,8}) ")
_READ_CHUNK_BYTES: Final = 64 * 1024
_MAX_OCTET_COUNT_BYTES: Final = 10
_MESSAGE_SEPARATORS: Final = b"\r\n\0 "


class SyslogMessage(msgspec.Struct, frozen=True):
    """A message as it was sent. If `is_truncated` is true, `data` is only its beginning."""

    data: bytes
    is_truncated: bool = False

    @property
    def text(self) -> str:
        return _decode_text(self.data).rstrip("\r\n\0")


def split_messages(data: bytes, limit: int) -> Iterator[tuple[int, str]]:
    """Split a body into messages with their positions, either by octet counts or by lines.

    Octet counts are used if the body begins with one and all of them are consistent. Each message is decoded after the
    split, because invalid UTF-8 changes its length when it is replaced by U+FFFD.
    """
    data = data.removeprefix(_BYTE_ORDER_MARK)
    frames, position = _split_by_octet_counts(data, limit)
    if not frames:
        yield from non_blank_lines(_decode_text(data), limit)
    elif _ends_at_message_boundary(data, position):
        yield from enumerate(_decode_text(frame).rstrip("\r\n") for frame in frames)
        for index, line in non_blank_lines(_decode_text(data[position:]), limit):
            yield len(frames) + index, line
    else:
        # The counts are wrong: the sender counts characters instead of bytes, or does not count the line end. Split by
        # lines, and remove the counts at the beginnings of the lines.
        for index, line in non_blank_lines(_decode_text(data), limit):
            yield index, remove_octet_count(line)


def remove_octet_count(line: str) -> str:
    return _LEADING_OCTET_COUNT_PATTERN.sub("", line)


def has_octet_counts(sample: bytes, *, is_whole: bool) -> bool:
    """Return whether the messages of a file that begins with `sample` have correct octet counts before them.

    If the sample is not the whole file, its last message or the last count may be cut off.
    """
    data = sample.removeprefix(_BYTE_ORDER_MARK)
    frames, position = _split_by_octet_counts(data, limit=len(data))
    if frames and not is_whole and (position >= len(data) or _CUT_OCTET_COUNT_PATTERN.fullmatch(data, position)):
        return True
    return bool(frames) and _ends_at_message_boundary(data, position)


def read_counted_messages(read: Callable[[int], bytes], max_bytes: int) -> Iterator[SyslogMessage]:
    """Yield the messages of a file with octet counts; `read` returns the next bytes, and no bytes at the end.

    Only the beginning is yielded of a message that is longer than `max_bytes`, or that the end of the file cuts off.
    """
    decoder = SyslogFrameDecoder(max_bytes)
    beginning = read(_READ_CHUNK_BYTES)
    while len(beginning) < len(_BYTE_ORDER_MARK) and (more := read(_READ_CHUNK_BYTES)):
        beginning += more
    chunk = beginning.removeprefix(_BYTE_ORDER_MARK)
    while chunk:
        yield from decoder.feed(chunk)
        chunk = read(_READ_CHUNK_BYTES)
    yield from decoder.finish(is_cut_message_included=True)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _split_by_octet_counts(data: bytes, limit: int) -> tuple[list[bytes], int]:
    """Split the data by octet counts; return the messages, and the position at which the last one ends."""
    frames: list[bytes] = []
    position = 0
    while count := _COUNT_BEFORE_PRIORITY_PATTERN.match(data, _WHITESPACE_PATTERN.match(data, position).end()):  # type: ignore[union-attr] # it always matches
        position = count.end() + int(count[1])
        frames.append(data[count.end() : position])
        if len(frames) > limit:
            raise too_many_items_fault(limit)
    return frames, position


def _ends_at_message_boundary(data: bytes, position: int) -> bool:
    """Return whether `position`, where the counted messages end, is the end of the data or of a line.

    If it is neither, a count is wrong.
    """
    if position >= len(data):
        return position == len(data)
    rest = _WHITESPACE_PATTERN.match(data, position).end()  # type: ignore[union-attr] # it always matches
    return rest == len(data) or (data[rest : rest + 1] == b"<" and b"\n" in data[position - 1 : rest])


class SyslogFrameDecoder:
    """Splits data that arrives in parts into messages, by octet counts or at line ends.

    The first byte of the data decides: a digit begins an octet count, and any other byte begins a line. Only the
    beginning of a message longer than `max_bytes` is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_message_bytes = max_bytes
        self._buffer = bytearray()
        self._uses_octet_counts: bool | None = None
        self._bytes_to_skip = 0
        self._is_skipping_line = False
        self._line_end_search_start = 0

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes of the unfinished message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[SyslogMessage]:
        """Add data; return the messages that it completes."""
        self._buffer += data
        found: list[SyslogMessage] = []
        position = self._take_whole_lines(found)
        while (after := self._take_message_or_separator(position, found)) is not None:
            position = after
        del self._buffer[:position]
        self._line_end_search_start = max(0, self._line_end_search_start - position)
        return found

    def finish(self, *, is_cut_message_included: bool = False) -> list[SyslogMessage]:
        """Return the message that the end of the data completes: a last line without a line end.

        If the messages have octet counts, the end of the data cuts off the last message. Return what there is of it if
        `is_cut_message_included` is true, and nothing otherwise.
        """
        rest, self._buffer = bytes(self._buffer), bytearray()
        is_omitted = self._uses_octet_counts and not is_cut_message_included
        if is_omitted or self._is_skipping_line or not rest.strip(_MESSAGE_SEPARATORS):
            return []
        if self._uses_octet_counts and _OCTET_COUNT_PATTERN.match(rest):
            return [SyslogMessage(rest[:_KEPT_BYTES_OF_LONG_MESSAGE], is_truncated=True)]
        return [SyslogMessage(rest)]

    def _take_whole_lines(self, found: list[SyslogMessage]) -> int:
        """Take all complete lines from the buffer at once; return the end of the last line.

        Take nothing and return 0 if the data has octet counts, or if it is not known yet whether it has.
        """
        if self._uses_octet_counts is not False or self._is_skipping_line:
            return 0
        end = self._buffer.rfind(b"\n") + 1
        for line in bytes(self._buffer[:end]).split(b"\n"):
            message = line.lstrip(_MESSAGE_SEPARATORS)
            if len(message) > self._max_message_bytes:
                found.append(SyslogMessage(message[:_KEPT_BYTES_OF_LONG_MESSAGE], is_truncated=True))
            elif message:
                found.append(SyslogMessage(message))
        return end

    def _take_message_or_separator(self, position: int, found: list[SyslogMessage]) -> int | None:
        """Take what is at a position in the buffer: a message, separators, or bytes to skip; return its end.

        Return None if more data is needed.
        """
        buffer = self._buffer
        if self._bytes_to_skip:
            skipped = min(self._bytes_to_skip, len(buffer) - position)
            self._bytes_to_skip -= skipped
            return position + skipped if skipped else None
        if self._is_skipping_line:
            return self._skip_line(position)
        start = position
        while position < len(buffer) and buffer[position] in _MESSAGE_SEPARATORS:
            position += 1
        if position > start:
            return position
        return self._take_message(position, found) if position < len(buffer) else None

    def _take_message(self, position: int, found: list[SyslogMessage]) -> int | None:
        rest = self._buffer[position : position + _MAX_OCTET_COUNT_BYTES]
        if self._uses_octet_counts is None:
            self._uses_octet_counts = rest[:1].isdigit()
        if not self._uses_octet_counts:
            return self._take_line(position, found)
        count = _OCTET_COUNT_PATTERN.match(rest)
        if count is not None:
            return self._take_counted_message(position + count.end(), int(count[1]), found)
        return None if len(rest) < _MAX_OCTET_COUNT_BYTES and rest.isdigit() else self._take_line(position, found)

    def _take_counted_message(self, begin: int, count: int, found: list[SyslogMessage]) -> int | None:
        end = begin + count
        if count > self._max_message_bytes:
            if len(self._buffer) - begin < min(count, _KEPT_BYTES_OF_LONG_MESSAGE):
                return None
            found.append(
                SyslogMessage(bytes(self._buffer[begin : begin + _KEPT_BYTES_OF_LONG_MESSAGE]), is_truncated=True)
            )
            self._bytes_to_skip = count
            return begin
        if len(self._buffer) < end:
            return None
        found.append(SyslogMessage(bytes(self._buffer[begin:end])))
        return end

    def _take_line(self, start: int, found: list[SyslogMessage]) -> int | None:
        end = self._buffer.find(b"\n", max(start, self._line_end_search_start))
        if end < 0:
            self._line_end_search_start = len(self._buffer)
            if len(self._buffer) - start <= self._max_message_bytes:
                return None
            found.append(
                SyslogMessage(bytes(self._buffer[start : start + _KEPT_BYTES_OF_LONG_MESSAGE]), is_truncated=True)
            )
            self._is_skipping_line = True
            return len(self._buffer)
        self._line_end_search_start = 0
        is_cut = end - start > self._max_message_bytes
        kept = start + _KEPT_BYTES_OF_LONG_MESSAGE if is_cut else end
        found.append(SyslogMessage(bytes(self._buffer[start:kept]), is_cut))
        return end + 1

    def _skip_line(self, position: int) -> int | None:
        end = self._buffer.find(b"\n", position)
        if end < 0:
            return len(self._buffer) if len(self._buffer) > position else None
        self._is_skipping_line = False
        return end + 1
