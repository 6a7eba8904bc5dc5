"""The memory watchdog ends a process that exceeds its limit, and reads memory more often the less room is left."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from cordwood.processes.memory_use import ResidentMemoryReader
from cordwood.processes.memory_watchdog import MEMORY_LIMIT_SIGNAL, MemoryLimit, MemoryWatchdog

OWNER_PID, CHILD_PID = 1, 2
GB = 10**9
HELD_BYTES = 100 * 10**6
# A program that allocates 100 MB, prints a line, and waits for input.
PROGRAM = f"held = bytearray(b'x' * {HELD_BYTES}); print('held', flush=True); input()"


class FakeMemory(ResidentMemoryReader):
    """A memory reader whose values the test sets, by process."""

    used: dict[int, int | None]

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def read(self) -> int | None:
        return self.used[self._pid]

    def close(self) -> None:
        pass


@pytest.fixture
def ended_pids() -> list[int]:
    return []


@pytest.fixture
def watchdog(ended_pids: list[int], monkeypatch: pytest.MonkeyPatch) -> MemoryWatchdog:
    monkeypatch.setattr(FakeMemory, "used", {OWNER_PID: GB, CHILD_PID: GB}, raising=False)
    return MemoryWatchdog(OWNER_PID, ended_pids.append, FakeMemory)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "held\n"
        yield running
        running.kill()


def test_a_process_above_its_limit_is_ended_by_the_signal_of_the_watchdog(process: subprocess.Popen[str]) -> None:
    watchdog = MemoryWatchdog(process.pid)
    watchdog.watch(process.pid, MemoryLimit(HELD_BYTES, 0))
    assert watchdog.end_processes_over_limit() is None
    assert process.wait(10) == -MEMORY_LIMIT_SIGNAL
    watchdog.close()


def test_a_process_below_its_limit_continues(process: subprocess.Popen[str]) -> None:
    watchdog = MemoryWatchdog(process.pid)
    watchdog.watch(process.pid, MemoryLimit(3 * HELD_BYTES, GB))
    assert watchdog.end_processes_over_limit() is not None
    assert process.poll() is None
    process.kill()
    process.wait()
    assert watchdog.end_processes_over_limit() is None
    watchdog.close()


def test_memory_is_read_more_often_the_less_room_is_left(watchdog: MemoryWatchdog, ended_pids: list[int]) -> None:
    watchdog.watch(CHILD_PID, MemoryLimit(100 * GB, GB))
    pauses = []
    for used in (GB, 99 * GB, 100 * GB):
        FakeMemory.used[CHILD_PID] = used
        pauses.append(watchdog.end_processes_over_limit() or 0.0)
    assert pauses[0] > pauses[1] > pauses[2] > 0
    assert ended_pids == []


def test_the_growth_of_the_owner_counts_for_a_quarter_of_the_limit_at_most(
    watchdog: MemoryWatchdog, ended_pids: list[int]
) -> None:
    watchdog.watch(CHILD_PID, MemoryLimit(4 * GB, GB))
    FakeMemory.used |= {OWNER_PID: 100 * GB, CHILD_PID: 3 * GB}
    assert watchdog.end_processes_over_limit() is not None
    assert ended_pids == []
    FakeMemory.used |= {OWNER_PID: int(1.6 * GB), CHILD_PID: int(3.5 * GB)}
    assert watchdog.end_processes_over_limit() is None
    assert ended_pids == [CHILD_PID]


@pytest.mark.parametrize("used", [None, 0], ids=["gone", "zombie"])
def test_a_process_that_has_ended_is_forgotten(
    watchdog: MemoryWatchdog, ended_pids: list[int], used: int | None
) -> None:
    watchdog.watch(CHILD_PID, MemoryLimit(4 * GB, GB))
    FakeMemory.used[CHILD_PID] = used
    assert watchdog.end_processes_over_limit() is None
    FakeMemory.used[CHILD_PID] = 100 * GB
    assert watchdog.end_processes_over_limit() is None
    assert ended_pids == []
