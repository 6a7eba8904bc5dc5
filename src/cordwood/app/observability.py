"""Observability of the service: the log on standard error, metrics, memory and disk space."""

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
from cordwood.observe.log import JsonLines
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Noted
from cordwood.observe.observer import Observer
from cordwood.processes.memory_use import bytes_together
from cordwood.settings.settings import Settings

FLUSH_SECONDS = 0.5
LOOK_SECONDS = 20.0


class Watch(msgspec.Struct, frozen=True):
    """The observer, its sinks, and the gauges."""

    observer: Observer
    metrics: Metrics
    log: JsonLines
    disk: DiskForecast
    memory: "Memory"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        ceiling = float(settings.limits.ceiling)
        folder, memory = Path(settings.serve.data_dir), Memory()
        gauges = {
            "cordwood_memory_bytes": memory.held_bytes,
            "cordwood_memory_ceiling_bytes": lambda: ceiling,
            "cordwood_disk_free_bytes": lambda: free_bytes(folder),
        }
        metrics = Metrics(cordwood.__version__, gauges)
        log = JsonLines(sys.stderr.buffer, settings.web.log_level)
        disk = DiskForecast(
            lambda: free_bytes(folder),
            time.monotonic,
            lambda sentence: log.note(Noted(message=sentence, level="warning")),
        )
        metrics.gauges["cordwood_disk_full_seconds"] = lambda: disk.seconds_left
        return cls(Observer((log, metrics)), metrics, log, disk, memory)


def free_bytes(folder: Path) -> float:
    """Return the free bytes on the file system of a folder, which need not exist yet."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return float(shutil.disk_usage(place).free)


class Memory(msgspec.Struct):
    """The memory of the service; `pids_below` returns its child processes."""

    pids_below: Callable[[], list[int]] = list

    def held_bytes(self) -> float:
        """Return the memory with shared pages counted once; this process's peak if the system does not report it."""
        held = bytes_together([os.getpid(), *self.pids_below()])
        return float(held) if held is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
