"""Split a stream of syslog messages: by octet counts (RFC 6587, 3.4.1), or at line ends.

Which of the two a connection uses is told by its first byte: a digit begins a count, and `<` begins a line.
"""

import re
from typing import Final

from cordwood.ingest.formats.syslog import SyslogMessage

# What is kept of a message that is too long.
_BEGINNING_BYTES: Final = 4096
_COUNT: Final = re.compile(rb"([1-9]\d{0,8}) ")
_MOST_COUNT_BYTES: Final = 10
_BETWEEN: Final = b"\r\n\0 "


class SyslogFrames:
    """The messages of one connection. Of a message longer than `most_bytes`, only the beginning is kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()
        self._is_counted: bool | None = None
        self._skipped_bytes = 0
        self._skips_line = False
        self._searched = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the unfinished message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[SyslogMessage]:
        """Return the messages that the data completes."""
        self._buffer += data
        found: list[SyslogMessage] = []
        at = self._whole_lines(found)
        while (after := self._next(at, found)) is not None:
            at = after
        del self._buffer[:at]
        self._searched = max(0, self._searched - at)
        return found

    def finish(self) -> list[SyslogMessage]:
        """Return the message that the end of the connection completes: a last line without a line end."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        if self._is_counted or self._skips_line or not rest.strip(_BETWEEN):
            return []
        return [SyslogMessage(rest)]

    def _whole_lines(self, found: list[SyslogMessage]) -> int:
        """Take all complete lines at once, if lines are what the connection sends; return their end."""
        if self._is_counted is not False or self._skips_line:
            return 0
        end = self._buffer.rfind(b"\n") + 1
        for line in bytes(self._buffer[:end]).split(b"\n"):
            message = line.lstrip(_BETWEEN)
            if len(message) > self._most_bytes:
                found.append(SyslogMessage(message[:_BEGINNING_BYTES], is_cut=True))
            elif message:
                found.append(SyslogMessage(message))
        return end

    def _next(self, at: int, found: list[SyslogMessage]) -> int | None:
        """Take the message at `at`; return its end, or None if it is not complete."""
        buffer = self._buffer
        if self._skipped_bytes:
            skipped = min(self._skipped_bytes, len(buffer) - at)
            self._skipped_bytes -= skipped
            return at + skipped if skipped else None
        if self._skips_line:
            return self._skip_line(at)
        start = at
        while at < len(buffer) and buffer[at] in _BETWEEN:
            at += 1
        if at > start:
            return at
        return self._message(at, found) if at < len(buffer) else None

    def _message(self, at: int, found: list[SyslogMessage]) -> int | None:
        rest = self._buffer[at : at + _MOST_COUNT_BYTES]
        if self._is_counted is None:
            self._is_counted = rest[:1].isdigit()
        if not self._is_counted:
            return self._line(at, found)
        count = _COUNT.match(rest)
        if count is not None:
            return self._counted(at + count.end(), int(count[1]), found)
        return None if len(rest) < _MOST_COUNT_BYTES and rest.isdigit() else self._line(at, found)

    def _counted(self, begin: int, count: int, found: list[SyslogMessage]) -> int | None:
        end = begin + count
        if count > self._most_bytes:
            if len(self._buffer) - begin < min(count, _BEGINNING_BYTES):
                return None
            found.append(SyslogMessage(bytes(self._buffer[begin : begin + _BEGINNING_BYTES]), is_cut=True))
            self._skipped_bytes = count
            return begin
        if len(self._buffer) < end:
            return None
        found.append(SyslogMessage(bytes(self._buffer[begin:end])))
        return end

    def _line(self, start: int, found: list[SyslogMessage]) -> int | None:
        end = self._buffer.find(b"\n", max(start, self._searched))
        if end < 0:
            self._searched = len(self._buffer)
            if len(self._buffer) - start <= self._most_bytes:
                return None
            found.append(SyslogMessage(bytes(self._buffer[start : start + _BEGINNING_BYTES]), is_cut=True))
            self._skips_line = True
            return len(self._buffer)
        self._searched = 0
        is_cut = end - start > self._most_bytes
        kept = start + _BEGINNING_BYTES if is_cut else end
        found.append(SyslogMessage(bytes(self._buffer[start:kept]), is_cut))
        return end + 1

    def _skip_line(self, at: int) -> int | None:
        end = self._buffer.find(b"\n", at)
        if end < 0:
            return len(self._buffer) if len(self._buffer) > at else None
        self._skips_line = False
        return end + 1
