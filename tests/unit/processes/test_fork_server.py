"""The fork server: its children can be killed and replaced, survive it, and end with the process that started it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.processes.fork_server import ForkedProcess, ForkServer
from tests.waiting import until

ECHO_ENTRY, SLEEP_ENTRY = "tests.unit.processes.entries:echo", "tests.unit.processes.entries:sleep"
# A program that starts a fork server, and forks a child that does not read its connection.
PROGRAM = f"""
import sys
from cordwood.processes.fork_server import ForkServer
server = ForkServer("{SLEEP_ENTRY}")
server.start()
child = server.fork()
print(server.pid, child.pid, flush=True)
sys.stdin.read()
server.close()
print("closed", flush=True)
"""


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def is_answering(child: ForkedProcess) -> bool:
    child.connection_socket.sendall(b"ping")
    return child.connection_socket.recv(4) == b"ping"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    opened = ForkServer(ECHO_ENTRY)
    yield opened
    opened.close()


def test_a_killed_child_is_replaced(server: ForkServer) -> None:
    first = server.fork()
    assert is_answering(first)
    assert not first.has_ended()
    first.kill()
    assert first.connection_socket.recv(1) == b""
    until(first.has_ended)
    second = server.fork()
    assert is_answering(second)
    assert second.pid != first.pid
    for child in (first, second):
        child.connection_socket.close()


def test_a_child_that_has_ended_leaves_no_zombie_and_is_not_killed_again(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = server.fork()
    child.connection_socket.close()
    until(child.has_ended)
    assert not Path(f"/proc/{child.pid}").exists()
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    child.kill()
    assert killed == []


def test_children_survive_a_killed_fork_server_which_is_replaced(server: ForkServer) -> None:
    first, killed = server.fork(), server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: not is_alive(killed))

    def is_replaced() -> bool:
        server.replace_if_ended()
        return server.pid != killed

    until(is_replaced)
    assert is_answering(first)
    second = server.fork()
    assert is_answering(second)
    for child in (first, second):
        child.connection_socket.close()


def test_a_fork_server_that_was_killed_is_replaced_by_the_next_fork(server: ForkServer) -> None:
    server.fork().connection_socket.close()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    child = server.fork()
    assert is_answering(child)
    child.connection_socket.close()


def test_a_running_fork_server_is_not_replaced(server: ForkServer) -> None:
    child, pid = server.fork(), server.pid
    server.replace_if_ended()
    assert server.pid == pid
    child.connection_socket.close()


def test_children_ignore_signals_meant_for_their_parent(server: ForkServer) -> None:
    child = server.fork()
    assert server.pid is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child.pid, number)
        os.kill(server.pid, number)
    assert is_answering(child)
    child.connection_socket.close()


@pytest.fixture
def program() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        yield started
        started.kill()


def pids_of(program: "subprocess.Popen[str]") -> list[int]:
    assert program.stdout is not None
    return [int(pid) for pid in program.stdout.readline().split()]


def test_all_processes_end_with_the_one_that_started_the_server(program: "subprocess.Popen[str]") -> None:
    pids = pids_of(program)
    assert all(map(is_alive, pids))
    program.kill()
    until(lambda: not any(map(is_alive, pids)))


def test_closing_ends_the_fork_server_and_its_children(program: "subprocess.Popen[str]") -> None:
    pids = pids_of(program)
    assert len(pids) == 2
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.close()
    assert program.stdout.readline() == "closed\n"
    until(lambda: not any(map(is_alive, pids)))
