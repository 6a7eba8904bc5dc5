"""Frames on a socket: order, concurrent senders, end of the connection, and sends that do not block."""

import fcntl
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from cordwood.processes.frames import FrameConnection
from cordwood.processes.memory_use import resident_bytes, total_memory_bytes

Pair = tuple[FrameConnection, FrameConnection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = map(FrameConnection, socket.socketpair())
    yield first, second
    first.close()
    second.close()


def test_frames_of_any_size_arrive_in_order(pair: Pair) -> None:
    payloads = [b"", b"x", b"y" * 70_000, bytes(5_000_000)]

    def send_all() -> None:
        for kind, payload in enumerate(payloads):
            pair[0].send(kind, payload)

    sender = threading.Thread(target=send_all)
    sender.start()
    assert [pair[1].receive() for _ in payloads] == list(enumerate(payloads))
    sender.join()


def test_frames_of_concurrent_senders_do_not_interleave(pair: Pair) -> None:
    senders = [threading.Thread(target=pair[0].send, args=(n, bytes([n]) * 200_000)) for n in range(8)]
    for sender in senders:
        sender.start()
    received = [pair[1].receive() for _ in senders]
    assert sorted(frame for frame in received if frame) == [(n, bytes([n]) * 200_000) for n in range(8)]
    for sender in senders:
        sender.join()


def test_receive_returns_none_at_the_end_of_the_connection(pair: Pair) -> None:
    received = []
    reader = threading.Thread(target=lambda: received.append(pair[1].receive()))
    reader.start()
    pair[0].shut_down()
    reader.join()
    assert received == [None]
    with pytest.raises(OSError, match="Broken pipe"):
        pair[0].send(1)


def test_try_send_returns_false_instead_of_blocking(pair: Pair) -> None:
    assert pair[0].try_send(1, b"first")
    stuck = threading.Thread(target=pair[0].send, args=(2, bytes(50_000_000)))
    stuck.start()
    assert pair[1].receive() == (1, b"first")
    while pair[0].try_send(3):
        pass
    assert pair[1].receive() == (2, bytes(50_000_000))
    stuck.join()


def test_try_send_works_with_a_descriptor_above_1023() -> None:
    """Send on a socket whose descriptor is above 1023.

    Regression: a service with a thousand connections could not send to a new engine process.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4096), before[1]))
    first, second = socket.socketpair()
    try:
        high = socket.socket(fileno=fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 2000))
        first.close()
        assert high.fileno() >= 2000
        sender, receiver = FrameConnection(high), FrameConnection(second)
        assert sender.try_send(1, b"sent")
        assert receiver.receive() == (1, b"sent")
        sender.close()
        receiver.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_memory_of_running_processes_is_measured() -> None:
    own_pid = threading.main_thread().native_id
    assert own_pid is not None
    memory_bytes = resident_bytes(own_pid)
    assert memory_bytes is not None
    assert memory_bytes > 10**6
    assert total_memory_bytes([own_pid]) is not None
    assert total_memory_bytes([]) is None
