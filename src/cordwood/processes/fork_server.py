"""A fork server: a single-threaded process with all modules loaded, which forks others quickly and safely.

A forked process leaves signals to its parent, ends with it, and is the first that the OOM killer ends.
"""

import ctypes
import gc
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

# What a forked process runs: it gets its end of a new connection.
Entry = Callable[[socket.socket], None]

_REQUEST = b"f"
_REPLY = struct.Struct("<ii")
_NO_STATUS = -1
# Forking takes milliseconds. A fork server that does not answer within this time is replaced.
_REPLY_SECONDS = 30.0
# The time to wait for a killed child before the next one is forked.
_REAP_SECONDS = 0.1
_END_SECONDS = 2.0
_SPAWNED = "from cordwood.processes.fork_server import run_spawned; run_spawned()"

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = Path("/proc/self/oom_score_adj")
# The kernel kills processes with high scores first when memory runs out; the highest is 1,000.
_HIGH_OOM_SCORE = "500"
# A terminal or service manager sends these to the whole process group; the parent handles them.
_PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child(msgspec.Struct, frozen=True):
    """A forked process and our end of its connection; `status` is the exit status of its predecessor, if known."""

    pid: int
    link: socket.socket
    status: int | None

    def kill(self) -> None:
        """Send SIGKILL; the process id is not reused before the next fork, because the child is reaped there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """Forks processes that run `entry`, written as `module:function`; safe from several threads.

    `start` forks the fork server itself: call it after all imports and before there is a second thread. If the fork server
    ends, the next `fork` starts another as a program, which takes about a second.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._forked: int | None = None
        self._spawned: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._spawned.pid if self._spawned else self._forked

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run(self._entry, theirs, parent)
        theirs.close()
        ours.settimeout(_REPLY_SECONDS)
        self._control, self._forked = ours, pid

    def fork(self) -> Child:
        """Fork a process that runs the entry; OSError where that fails."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                pid, status = self._fork_or_respawn(theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return Child(pid, ours, None if status == _NO_STATUS else status)

    def close(self) -> None:
        """End the fork server and everything that it has forked; the next `fork` starts another one."""
        with self._lock:
            self._end()

    def _fork_or_respawn(self, link: socket.socket) -> tuple[int, int]:
        if self._control is not None:
            try:
                return _request_fork(self._control, link)
            except OSError:
                self._end()
        self._spawn()
        assert self._control is not None  # noqa: S101 - for the type checker
        return _request_fork(self._control, link)

    def _spawn(self) -> None:
        """Start a fork server as a program, since a process with threads must not fork."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _SPAWNED, self._entry, str(theirs.fileno())]
        self._spawned = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: S603 - this program
        theirs.close()
        ours.settimeout(_REPLY_SECONDS)
        self._control = ours

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._spawned is not None:
            _wait_for_spawned(self._spawned)
            self._spawned = None
        if self._forked is not None:
            _wait_for_forked(self._forked)
            self._forked = None


def run_spawned() -> None:
    """Run a fork server started as a program; its arguments are the entry and its connection's descriptor."""
    _, entry, descriptor = sys.argv
    _run(entry, socket.socket(fileno=int(descriptor)), None)


def _request_fork(control: socket.socket, link: socket.socket) -> tuple[int, int]:
    socket.send_fds(control, [_REQUEST], [link.fileno()])
    reply = b""
    while len(reply) < _REPLY.size:
        chunk = control.recv(_REPLY.size - len(reply))
        if not chunk:
            raise ConnectionResetError
        reply += chunk
    pid, status = _REPLY.unpack(reply)
    return pid, status


def _wait_for_spawned(spawned: "subprocess.Popen[bytes]") -> None:
    try:
        spawned.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        spawned.kill()
        spawned.wait()


def _wait_for_forked(pid: int) -> None:
    deadline = time.monotonic() + _END_SECONDS
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)


def _run(entry: str, control: socket.socket, parent: int | None) -> None:
    """Run the fork server; never returns."""
    code = 1
    try:
        _leave_signals_to_parent()
        if parent is not None:
            _end_with_parent(parent)
        module, _, function = entry.partition(":")
        run = getattr(importlib.import_module(module), function)
        gc.disable()
        gc.freeze()
        _serve(run, control)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent's program may go on in this process
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(run: Entry, control: socket.socket) -> None:
    """Fork one process for each request, until the other end closes."""
    last_pid = 0
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not request:
            return
        status = _reap(last_pid) if last_pid else _NO_STATUS
        last_pid = _fork_entry(run, control, descriptors[0])
        os.close(descriptors[0])
        control.sendall(_REPLY.pack(last_pid, status))


def _reap(pid: int) -> int:
    """Return the wait status of the child; reap earlier children, too."""
    status, deadline = _NO_STATUS, time.monotonic() + _REAP_SECONDS
    with suppress(ChildProcessError):
        while status == _NO_STATUS and time.monotonic() < deadline:
            ended_pid, ended_status = os.waitpid(-1, os.WNOHANG)
            if ended_pid == pid:
                status = ended_status
            elif not ended_pid:
                time.sleep(0.002)
    return status


def _fork_entry(run: Entry, control: socket.socket, descriptor: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        control.close()
        _end_with_parent(parent)
        _prefer_for_oom_kill()
        gc.enable()
        run(socket.socket(fileno=descriptor))
        code = 0
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc()
    finally:
        os._exit(code)


def _leave_signals_to_parent() -> None:
    """Ignore the signals that ask for an end or a reload; the parent handles them."""
    signal.set_wakeup_fd(-1)
    for number in _PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends, where the system can do that."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prefer_for_oom_kill() -> None:
    """Raise the OOM score, so that this process is killed before others."""
    with suppress(OSError):
        _OOM_SCORE.write_text(_HIGH_OOM_SCORE, encoding="ascii")
