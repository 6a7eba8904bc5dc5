"""Exchange frames (messages with a prefix for their length) between two processes over a stream socket."""

import select
import socket
import struct
import threading
from contextlib import suppress

_FRAME_HEADER_FORMAT = struct.Struct("<IB")
_READ_BUFFER_BYTES = 256 * 1024
_SOCKET_BUFFER_BYTES = 1024 * 1024
# A payload up to this size is copied and sent together with its header. A larger one is sent separately, to save the
# copy.
_MAX_SINGLE_WRITE_PAYLOAD_BYTES = 64 * 1024
# If the other end reads nothing for this time, sending fails.
_SEND_TIMEOUT_SECONDS = 30
_NO_WAIT_POLL_TIMEOUT_MS = 0


class FrameConnection:
    """One end of a connection over which two processes send each other frames.

    `send` is thread-safe; `receive` must be called from one thread only.
    """

    def __init__(self, link: socket.socket) -> None:
        self._socket = link
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_SECONDS, 0))
        for direction in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            link.setsockopt(socket.SOL_SOCKET, direction, _SOCKET_BUFFER_BYTES)
        self._reader = link.makefile("rb", buffering=_READ_BUFFER_BYTES)
        self._send_lock = threading.Lock()
        # `select.select` accepts no descriptor above 1,023, but a service with many connections has such descriptors.
        # So use `poll`.
        self._writable_poll = select.poll()
        self._writable_poll.register(link, select.POLLOUT)

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Send one frame; raise OSError if the other end has closed the connection or does not read."""
        with self._send_lock:
            self._write_frame(kind, payload)

    def try_send(self, kind: int, payload: bytes = b"") -> bool:
        """Send one short frame; if sending would block, return False instead."""
        if not self._send_lock.acquire(blocking=False):
            return False
        try:
            if not self._writable_poll.poll(_NO_WAIT_POLL_TIMEOUT_MS):
                return False
            self._write_frame(kind, payload)
        finally:
            self._send_lock.release()
        return True

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next frame, or None when the other end has closed the connection."""
        try:
            head = self._reader.read(_FRAME_HEADER_FORMAT.size)
            if len(head) < _FRAME_HEADER_FORMAT.size:
                return None
            length, kind = _FRAME_HEADER_FORMAT.unpack(head)
            payload = self._reader.read(length)
        except (OSError, ValueError):
            return None
        return (kind, payload) if len(payload) == length else None

    def shut_down(self) -> None:
        """Shut down both directions, from any thread. A `receive` that waits in another thread then returns None."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection's file descriptors. Call this method only when no other thread reads or sends."""
        self.shut_down()
        with suppress(OSError):
            self._reader.close()
        self._socket.close()

    def _write_frame(self, kind: int, payload: bytes) -> None:
        head = _FRAME_HEADER_FORMAT.pack(len(payload), kind)
        if len(payload) <= _MAX_SINGLE_WRITE_PAYLOAD_BYTES:
            self._socket.sendall(head + payload)
        else:
            self._socket.sendall(head)
            self._socket.sendall(payload)
