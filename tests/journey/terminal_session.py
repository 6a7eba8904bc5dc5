"""A command in a pseudo-terminal of a given size: its output, and the input that a test types."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

# Matches the progress line of a slow query, which the command overwrites.
_PROGRESS_LINE = re.compile(r"\r\d+\.\d s[^\r\n]*\x1b\[K")
_ESCAPE_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


# A program that makes standard input the controlling terminal, so that Ctrl-C sends a signal, and then runs the
# command.
_RUN_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execv(sys.executable, [sys.executable, '-m', 'cordwood', *sys.argv[1:]])"
)


class TerminalSession:
    """A running command with a terminal as standard input, output and error."""

    def __init__(
        self, *arguments: str, columns: int = 80, lines: int = 24, env: Mapping[str, str] | None = None
    ) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN_WITH_TERMINAL, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**inherited, "TERM": "xterm", **(env or {})},
            start_new_session=True,
        )
        os.close(inner)
        self.raw = ""
        self._consumed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    @property
    def text(self) -> str:
        """Return the output without escape sequences, and without the progress of queries."""
        return _ESCAPE_SEQUENCES.sub("", _PROGRESS_LINE.sub("", self.raw))

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, *expected: str, last: str = "", seconds: float = 30.0) -> str:
        """Wait for output with the expected texts that ends with `last`. Return the output since the last call."""
        deadline = time.monotonic() + seconds
        while not (all(text in self.unread for text in expected) and self.unread.endswith(last)):
            assert self._read(max(0.0, deadline - time.monotonic())), f"{expected}, {last!r}: not in {self.unread!r}"
        printed, self._consumed = self.unread, len(self.text)
        return printed

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        """Wait until all output, including its escape sequences, contains a match of the pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.raw):
            assert self._read(max(0.0, deadline - time.monotonic())), f"{pattern}: not in {self.raw!r}"

    @property
    def unread(self) -> str:
        return self.text[self._consumed :]

    def end(self, seconds: float = 30.0) -> int:
        """Read output until the command ends, and return its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        return self.process.wait(seconds)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self._terminal, 65_536)
        except OSError:
            return False
        self.raw += read.decode("utf-8", "replace")
        return bool(read)
