"""What watches the service: the log on standard error, the metrics, and how much memory there is."""

import os
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Self

import msgspec

import cordwood
from cordwood.observe.disk import DiskForecast
from cordwood.observe.log import JsonLines
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Noted
from cordwood.observe.observer import Observer
from cordwood.settings.settings import Settings

FLUSH_SECONDS = 0.5
LOOK_SECONDS = 20.0
_STATM = Path("/proc/self/statm")


class Watch(msgspec.Struct, frozen=True):
    """An observer and the sinks behind it."""

    observer: Observer
    metrics: Metrics
    log: JsonLines
    disk: DiskForecast

    @classmethod
    def of(cls, settings: Settings) -> Self:
        ceiling = float(settings.limits.ceiling)
        folder = Path(settings.serve.data_dir)
        gauges = {
            "cordwood_memory_bytes": resident_bytes,
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
        return cls(Observer((log, metrics)), metrics, log, disk)


def free_bytes(folder: Path) -> float:
    """What may still be written where the folder is, or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return float(shutil.disk_usage(place).free)


def resident_bytes() -> float:
    """Memory that the process holds now; where the system does not tell, the most it ever held."""
    try:
        return float(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
