"""Frames arrive whole and in order, and no end waits for ever for the other."""

import socket
import threading
from collections.abc import Iterator

import pytest

from cordwood.processes.frames import Frames
from cordwood.processes.memory_use import resident_bytes, total_bytes

Pair = tuple[Frames, Frames]


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = map(Frames, socket.socketpair())
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


def test_frames_of_several_threads_do_not_mix(pair: Pair) -> None:
    senders = [threading.Thread(target=pair[0].send, args=(n, bytes([n]) * 200_000)) for n in range(8)]
    for sender in senders:
        sender.start()
    found = [pair[1].receive() for _ in senders]
    assert sorted(frame for frame in found if frame) == [(n, bytes([n]) * 200_000) for n in range(8)]
    for sender in senders:
        sender.join()


def test_the_end_of_a_connection_is_told(pair: Pair) -> None:
    told = []
    reader = threading.Thread(target=lambda: told.append(pair[1].receive()))
    reader.start()
    pair[0].shut_down()
    reader.join()
    assert told == [None]
    with pytest.raises(OSError, match="Broken pipe"):
        pair[0].send(1)


def test_a_short_frame_is_given_up_where_it_would_have_to_wait(pair: Pair) -> None:
    assert pair[0].try_send(1, b"first")
    stuck = threading.Thread(target=pair[0].send, args=(2, bytes(50_000_000)))
    stuck.start()
    assert pair[1].receive() == (1, b"first")
    while pair[0].try_send(3):
        pass
    assert pair[1].receive() == (2, bytes(50_000_000))
    stuck.join()


def test_memory_is_told_of_processes_that_live() -> None:
    own = threading.main_thread().native_id
    assert own is not None
    held = resident_bytes(own)
    assert held is not None
    assert held > 10**6
    assert total_bytes([own]) is not None
    assert total_bytes([]) is None
