"""The log: one JSON object for each line, buffered briefly to save system calls."""

import threading
import time
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec
from msgspec import UNSET

from cordwood.observe.observation import Observation

_LEVEL_BY_NAME = {level: f'"level":"{level}",'.encode() for level in ("debug", "info", "warning", "error")}
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
BUFFER_BYTES = 32 * 1024


class JsonLineLog:
    """Writes warnings and errors at once, other lines when the buffer is full or flushed."""

    def __init__(self, out: BinaryIO, level: str = "info") -> None:
        self._out = out
        self._min_level = LEVELS[level]
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._encoder = msgspec.json.Encoder()
        self._prefix_second = 0
        self._prefix = b""

    def note(self, observation: object) -> None:
        if not isinstance(observation, Observation):
            return
        level = observation.effective_level()
        if LEVELS[level] < self._min_level:
            return
        line = self._encoder.encode(observation)
        with self._lock:
            self._buffer += self._timestamp(time.time())
            if observation.level is UNSET:
                self._buffer += _LEVEL_BY_NAME[level]
            self._buffer += line[1:]
            self._buffer += b"\n"
            if len(self._buffer) >= BUFFER_BYTES or LEVELS[level] >= LEVELS["warning"]:
                self._write()

    def flush(self) -> None:
        with self._lock:
            if self._buffer:
                self._write()

    def _timestamp(self, now: float) -> bytes:
        second = int(now)
        if second != self._prefix_second:
            self._prefix_second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime('{"time":"%Y-%m-%dT%H:%M:%S').encode()
        return self._prefix + b'.%03dZ",' % ((now - second) * 1000)

    def _write(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        try:
            self._out.write(buffer)
            self._out.flush()
        except (OSError, ValueError):
            # An error of the log's output must not stop the service.
            return
