"""The observability of the service: its log on standard error, metrics, memory and disk space."""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

import cordwood
from cordwood.observe.disk import DiskForecast
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import JsonLineLog, Noted, Observer
from cordwood.processes.memory_use import total_bytes
from cordwood.settings.settings import Settings

FLUSH_SECONDS = 0.5
DISK_SAMPLE_SECONDS = 20.0


class Observability(msgspec.Struct, frozen=True):
    """The observer, the sinks of observations, and the gauges."""

    observer: Observer
    metrics: Metrics
    log: JsonLineLog
    disk: DiskForecast
    memory: "Memory"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        ceiling = float(settings.limits.ceiling)
        folder, memory = Path(settings.serve.data_dir), Memory()
        gauges = {
            "cordwood_memory_bytes": memory.used_bytes,
            "cordwood_memory_ceiling_bytes": lambda: ceiling,
            "cordwood_disk_free_bytes": lambda: free_bytes(folder),
        }
        metrics = Metrics(cordwood.__version__, gauges)
        log = JsonLineLog(sys.stderr.buffer, settings.web.log_level)
        disk = DiskForecast(
            lambda: free_bytes(folder),
            time.monotonic,
            lambda sentence: log.note(Noted(message=sentence, level="warning")),
        )
        metrics.gauges["cordwood_disk_full_seconds"] = lambda: disk.seconds_left
        return cls(Observer((log, metrics)), metrics, log, disk, memory)


def free_bytes(folder: Path) -> float:
    """Return the free bytes of the file system of a folder, which need not exist yet."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    return float(shutil.disk_usage(existing).free)


class Memory(msgspec.Struct):
    """The memory of the service. `child_pids` returns its child processes."""

    child_pids: Callable[[], list[int]] = list

    def used_bytes(self) -> float:
        """Return the memory, counting shared pages once; this process's peak if the system does not report it."""
        size = total_bytes([os.getpid(), *self.child_pids()])
        return float(size) if size is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
