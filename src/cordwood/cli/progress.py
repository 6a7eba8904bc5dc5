"""Progress in bytes, as a line that is rewritten on a terminal."""

import sys
import time

import msgspec

from cordwood.cli.terminal import note


class Bytes(msgspec.Struct):
    byte_count: int = 0
    began: float = msgspec.field(default_factory=time.monotonic)
    _told: float = 0.0

    def add(self, byte_count: int) -> None:
        self.byte_count += byte_count
        if sys.stderr.isatty() and time.monotonic() - self._told > 0.1:
            self._told = time.monotonic()
            print(f"\r{self.line()}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._told:
            note("")

    def line(self) -> str:
        seconds = max(time.monotonic() - self.began, 1e-9)
        return f"{self.byte_count / 1e6:,.1f} MB ({self.byte_count / 1e6 / seconds:,.1f} MB/s)"
