"""A watchdog that ends a process whose memory exceeds a hard limit.

The watchdog runs in the fork server, which has only one thread and can therefore react at once. A thread of the serving
process might have to wait a second for the interpreter lock, and in that time a query can allocate gigabytes.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from cordwood.processes.memory_use import ResidentMemoryReader

# The signal that ends a process whose memory exceeds the limit. Forked processes have no handler for it, so it ends
# them at once, like SIGKILL. Unlike SIGKILL, its number in the exit status shows that the watchdog ended the process.
MEMORY_LIMIT_SIGNAL = signal.SIGUSR2
# The maximum rate at which one processor can allocate and fill memory. A process needs at least a certain time to reach
# its limit at this rate. The next check takes place before then.
_MAX_ALLOCATION_BYTES_PER_SECOND = 3 * 10**9
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.004, 0.25
# When the owner's memory grows, the limit of each watched process is lowered by the same amount, but at most by this
# share of the limit. Without this bound, a process that uses little memory could be ended because its owner uses much.
_MAX_LIMIT_REDUCTION_SHARE = 1 / 4


class MemoryLimit(NamedTuple):
    """The memory limit of a process, which takes the memory of its owner into account.

    The process may use `max_bytes` of resident memory, minus the bytes by which the owner's memory has grown beyond
    `owner_base_bytes`.
    """

    max_bytes: int
    owner_base_bytes: int


class MemoryWatchdog:
    """Ends processes that exceed their memory limit. `owner` is the parent of these processes.

    The memory of the processes is read whenever `end_processes_over_limit` is called.
    """

    def __init__(
        self,
        owner: int,
        end: Callable[[int], None] | None = None,
        read: type[ResidentMemoryReader] = ResidentMemoryReader,
    ) -> None:
        self._end_process = end or _send_memory_limit_signal
        self._create_memory_reader = read
        self._owner_memory_reader = read(owner)
        self._readers_and_limits_by_pid: dict[int, tuple[ResidentMemoryReader, MemoryLimit]] = {}
        self._max_allocation_bytes_per_second = _MAX_ALLOCATION_BYTES_PER_SECOND * (os.cpu_count() or 1)

    def watch(self, pid: int, limit: MemoryLimit) -> None:
        self._readers_and_limits_by_pid[pid] = self._create_memory_reader(pid), limit

    def end_processes_over_limit(self) -> float | None:
        """End the processes that exceed their memory limit.

        Return in how many seconds to call this method again, or None if no process is watched.
        """
        pause_seconds = None
        for pid, (memory, limit) in list(self._readers_and_limits_by_pid.items()):
            used_bytes = memory.read()
            room_bytes = 0 if used_bytes is None else self._allowed_bytes(limit) - used_bytes
            # The system reports 0 bytes for a process that has ended as long as its parent has not waited for it.
            if used_bytes and room_bytes >= 0:
                pause_seconds = min(
                    pause_seconds or _MAX_PAUSE_SECONDS, room_bytes / self._max_allocation_bytes_per_second
                )
                continue
            del self._readers_and_limits_by_pid[pid]
            memory.close()
            if used_bytes:
                self._end_process(pid)
        return None if pause_seconds is None else max(pause_seconds, _MIN_PAUSE_SECONDS)

    def close(self) -> None:
        for memory, _ in self._readers_and_limits_by_pid.values():
            memory.close()
        self._readers_and_limits_by_pid.clear()
        self._owner_memory_reader.close()

    def _allowed_bytes(self, limit: MemoryLimit) -> int:
        grown_bytes = max(0, (self._owner_memory_reader.read() or 0) - limit.owner_base_bytes)
        return limit.max_bytes - min(grown_bytes, int(_MAX_LIMIT_REDUCTION_SHARE * limit.max_bytes))


def _send_memory_limit_signal(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, MEMORY_LIMIT_SIGNAL)
