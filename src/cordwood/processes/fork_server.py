"""A fork server: a process with all modules loaded but a single thread, which forks other processes quickly and safely.

The process that uses the fork server is its owner. On systems with child subreapers, each forked process becomes a
child of the owner. A forked process ends with the owner, but not with the fork server. It ignores signals such as
SIGTERM, which the owner handles. If memory runs out, the kernel kills forked processes before other processes.
"""

import ctypes
import gc
import importlib
import os
import select
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

from cordwood.processes.memory_watchdog import MemoryLimit, MemoryWatchdog

# The type of the function that a forked process runs. Its argument is one end of a new connection; the owner has the
# other end.
ProcessEntryFunction = Callable[[socket.socket], None]

# The format of a request: its kind, a process id, and the two numbers of a `MemoryLimit`. In a request to fork, the
# process id and the two numbers are zero.
_FORK_SERVER_REQUEST_FORMAT = struct.Struct("<cqqq")
_FORK, _WATCH = b"f", b"w"
_FORK_REPLY_FORMAT = struct.Struct("<i")
# The maximum time for an answer of the fork server. Forking takes milliseconds, so a fork server that takes longer is
# broken and is replaced.
_MAX_FORK_REPLY_WAIT_SECONDS = 30.0
_GRACE_SECONDS_BEFORE_KILL = 2.0
# The maximum time to wait for the exit status of a process that has closed its connection. A process closes its
# connection shortly before the system has its exit status.
_MAX_EXIT_STATUS_WAIT_SECONDS = 1.0
# The maximum time that a forked process waits until the owner has become its parent.
_MAX_REPARENTING_WAIT_SECONDS = 5.0
_FORK_SERVER_PROGRAM = "from cordwood.processes.fork_server import run_spawned_fork_server; run_spawned_fork_server()"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC_SELF_FOLDER = Path("/proc/self")
_OOM_SCORE_FILE = Path("/proc/self/oom_score_adj")
# When memory runs out, the kernel first kills the processes with high scores. The highest possible score is 1,000, and
# the usual one is 0.
_FORKED_PROCESS_OOM_SCORE = "500"
# Signals that a terminal or service manager sends to all processes of the service. Only the parent handles them.
_SIGNALS_LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ForkedProcess:
    """A forked process, and the owner's end of the connection to it."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.connection_socket = link
        self._lock = threading.Lock()
        self._is_reaped = False
        self._terminating_signal = 0

    def kill(self) -> None:
        """Send SIGKILL to the process, unless it has ended. If it has, another process may have its id by now."""
        with self._lock, suppress(ProcessLookupError):
            if not self._reap():
                os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Return whether the process has ended.

        If so, the process is also removed from the system's table of processes.
        """
        with self._lock:
            return self._reap()

    def wait_for_exit(self) -> int:
        """Wait until the process has ended; return the signal that ended it, or 0 if no signal did.

        Call this method only after the process has closed its connection, because it waits only briefly: for at most
        `_MAX_EXIT_STATUS_WAIT_SECONDS`.
        """
        deadline = time.monotonic() + _MAX_EXIT_STATUS_WAIT_SECONDS
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._terminating_signal

    def _reap(self) -> bool:
        if self._is_reaped:
            return True
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._is_reaped = pid != 0
            self._terminating_signal = os.WTERMSIG(status) if pid and os.WIFSIGNALED(status) else 0
        except ChildProcessError:
            # Without child subreapers, the forked process is not a child of this process, so `waitpid` fails. Look for
            # the process in /proc instead.
            self._is_reaped = not Path(f"/proc/{self.pid}").exists() if _PROC_SELF_FOLDER.exists() else False
        return self._is_reaped


class ForkServer:
    """Forks processes that run the function `entry`, written as `module:function`. Thread-safe.

    `start` forks the fork server itself. Call it after all imports, and before there is a second thread. If the fork
    server has ended, a new one is started as a program, which takes about a second. `replace_if_ended` starts it
    without waiting. If `replace_if_ended` was not called, the next call of `fork` starts the new fork server and waits
    for it.
    """

    def __init__(self, entry: str) -> None:
        self._entry_function_path = entry
        self._lock = threading.Lock()
        self._control_socket: socket.socket | None = None
        self._forked_server_pid: int | None = None
        self._spawned_server: subprocess.Popen[bytes] | None = None
        self._children: list[ForkedProcess] = []
        self._memory_limits: dict[ForkedProcess, MemoryLimit] = {}

    @property
    def pid(self) -> int | None:
        return self._spawned_server.pid if self._spawned_server else self._forked_server_pid

    def start(self) -> None:
        _become_child_subreaper()
        ours, theirs = socket.socketpair()
        owner = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _die_with_parent(owner)
            _run_fork_server(self._entry_function_path, theirs, owner)
        theirs.close()
        ours.settimeout(_MAX_FORK_REPLY_WAIT_SECONDS)
        self._control_socket, self._forked_server_pid = ours, pid

    def fork(self) -> ForkedProcess:
        """Fork a process that runs the function `entry`; raise OSError if that fails."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                child = ForkedProcess(self._fork_or_respawn(theirs), ours)
                self._children = [each for each in self._children if not each.has_ended()] + [child]
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return child

    def watch_memory(self, child: ForkedProcess, limit: MemoryLimit) -> None:
        """Let the fork server end the process `child` as soon as its memory exceeds the limit.

        This works only if the system reports the memory of processes.
        """
        with self._lock:
            self._memory_limits = {
                watched: old for watched, old in self._memory_limits.items() if not watched.has_ended()
            } | {child: limit}
            # Ignore an error if the fork server has ended: `_spawn_server` repeats this request to the new fork server.
            with suppress(OSError):
                self._request_memory_watch(child, limit)

    def replace_if_ended(self) -> None:
        """Start a new fork server if the current one has ended, without waiting until it is ready."""
        if self._control_socket is None or not self._lock.acquire(blocking=False):
            return
        try:
            if _has_peer_closed(self._control_socket):
                self._end_server()
                self._spawn_server()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the fork server and all processes that it has forked. The next `fork` would start a new fork server."""
        with self._lock:
            self._end_server()
            for child in self._children:
                child.kill()

    def _fork_or_respawn(self, link: socket.socket) -> int:
        if self._control_socket is not None:
            try:
                return _request_fork(self._control_socket, link)
            except OSError:
                self._end_server()
        self._spawn_server()
        assert self._control_socket is not None  # noqa: S101 - for the type checker
        return _request_fork(self._control_socket, link)

    def _spawn_server(self) -> None:
        """Start a fork server as a program and not by a fork, because a process with threads must not fork."""
        _become_child_subreaper()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _FORK_SERVER_PROGRAM, self._entry_function_path, str(theirs.fileno())]
        self._spawned_server = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: S603 - this program
        theirs.close()
        ours.settimeout(_MAX_FORK_REPLY_WAIT_SECONDS)
        self._control_socket = ours
        for child, limit in self._memory_limits.items():
            self._request_memory_watch(child, limit)

    def _request_memory_watch(self, child: ForkedProcess, limit: MemoryLimit) -> None:
        if self._control_socket is not None:
            self._control_socket.sendall(_FORK_SERVER_REQUEST_FORMAT.pack(_WATCH, child.pid, *limit))

    def _end_server(self) -> None:
        if self._control_socket is not None:
            self._control_socket.close()
            self._control_socket = None
        if self._spawned_server is not None:
            _stop_spawned_server(self._spawned_server)
            self._spawned_server = None
        if self._forked_server_pid is not None:
            _stop_forked_server(self._forked_server_pid)
            self._forked_server_pid = None


def run_spawned_fork_server() -> None:
    """Run the fork server in a program that `_spawn_server` started.

    The arguments of the program are the entry function, and the file descriptor of the connection to the owner.
    """
    _, entry, descriptor = sys.argv
    _run_fork_server(entry, socket.socket(fileno=int(descriptor)), os.getppid())


def _request_fork(control: socket.socket, link: socket.socket) -> int:
    socket.send_fds(control, [_FORK_SERVER_REQUEST_FORMAT.pack(_FORK, 0, 0, 0)], [link.fileno()])
    reply = b""
    while len(reply) < _FORK_REPLY_FORMAT.size:
        chunk = control.recv(_FORK_REPLY_FORMAT.size - len(reply))
        if not chunk:
            raise ConnectionResetError
        reply += chunk
    (pid,) = _FORK_REPLY_FORMAT.unpack(reply)
    return int(pid)


def _has_peer_closed(control: socket.socket) -> bool:
    """Return whether the other end has closed the connection. `poll` reports this even if no event is registered."""
    poll = select.poll()
    poll.register(control, 0)
    return bool(poll.poll(0))


def _stop_spawned_server(spawned: "subprocess.Popen[bytes]") -> None:
    try:
        spawned.wait(_GRACE_SECONDS_BEFORE_KILL)
    except subprocess.TimeoutExpired:
        spawned.kill()
        spawned.wait()


def _stop_forked_server(pid: int) -> None:
    deadline = time.monotonic() + _GRACE_SECONDS_BEFORE_KILL
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)


def _run_fork_server(entry: str, control: socket.socket, owner: int) -> None:
    """Run the fork server of the process `owner`. This function never returns."""
    code = 1
    try:
        _leave_signals_to_parent()
        module, _, function = entry.partition(":")
        run = getattr(importlib.import_module(module), function)
        gc.disable()
        gc.freeze()
        _serve_requests(run, control, owner)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent's program may go on in this process
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve_requests(run: ProcessEntryFunction, control: socket.socket, owner: int) -> None:
    """Fork processes on request, and end those that exceed their memory limit.

    This continues until the owner closes the connection.
    """
    watchdog = MemoryWatchdog(owner)
    poll = select.poll()
    poll.register(control, select.POLLIN)

    def close_watchdog_and_run(link: socket.socket) -> None:
        watchdog.close()
        run(link)

    while True:
        pause_seconds = watchdog.end_processes_over_limit()
        if not poll.poll(None if pause_seconds is None else pause_seconds * 1000):
            continue
        request, descriptors, _, _ = socket.recv_fds(control, _FORK_SERVER_REQUEST_FORMAT.size, 1)
        if not request:
            return
        kind, pid, *limit = _FORK_SERVER_REQUEST_FORMAT.unpack(request)
        if kind == _WATCH:
            watchdog.watch(pid, MemoryLimit(*limit))
            continue
        _double_fork_process(close_watchdog_and_run, control, descriptors[0], owner)
        os.close(descriptors[0])


def _double_fork_process(run: ProcessEntryFunction, control: socket.socket, descriptor: int, owner: int) -> None:
    """Fork a process whose parent ends at once, so that the owner becomes the parent of the process.

    The process sends its id to the owner, and then runs the function `run`.
    """
    intermediate = os.fork()
    if intermediate:
        _, status = os.waitpid(intermediate, 0)
        if status:
            raise OSError("The process could not be forked.")
        return
    code = 1
    try:
        parent = os.getpid()
        if os.fork():
            code = 0
        else:
            _wait_until_reparented(parent)
            _die_with_owner(owner)
            control.sendall(_FORK_REPLY_FORMAT.pack(os.getpid()))
            control.close()
            _raise_own_oom_score()
            gc.enable()
            run(socket.socket(fileno=descriptor))
            code = 0
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc()
    finally:
        os._exit(code)


def _die_with_owner(owner: int) -> None:
    """Ask the kernel to end this process when its owner ends.

    If the owner has already ended, end this process now.
    """
    if os.getppid() == owner:
        _die_with_parent(owner)
    else:
        # The owner is not the parent, so either the system has no child subreapers, or the owner has ended. If it has
        # ended, this call raises ProcessLookupError, which ends this process.
        os.kill(owner, 0)


def _wait_until_reparented(parent: int) -> None:
    """Wait until the process `parent` has ended and this process has another parent, but only for a limited time."""
    deadline = time.monotonic() + _MAX_REPARENTING_WAIT_SECONDS
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.0005)


def _leave_signals_to_parent() -> None:
    """Ignore the signals that ask for a stop or a reload, because the parent handles them."""
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS_LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)


def _become_child_subreaper() -> None:
    """Make this process a child subreaper, if the system has child subreapers.

    If the parent of one of its descendants ends, a child subreaper becomes the new parent.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends, if the system can do that."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _raise_own_oom_score() -> None:
    """Make the kernel kill this process before others when memory runs out, by raising its OOM score."""
    with suppress(OSError):
        _OOM_SCORE_FILE.write_text(_FORKED_PROCESS_OOM_SCORE, encoding="ascii")
