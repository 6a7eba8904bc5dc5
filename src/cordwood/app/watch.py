"""What watches the service: the log on standard error, the metrics, and how much memory there is."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import cordwood
from cordwood.observe.log import JsonLines
from cordwood.observe.metrics import Metrics
from cordwood.observe.observer import Observer
from cordwood.settings.settings import Settings

FLUSH_SECONDS = 0.5
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Watch:
    """An observer and the sinks behind it."""

    observer: Observer
    metrics: Metrics
    log: JsonLines

    @classmethod
    def of(cls, settings: Settings) -> Self:
        ceiling = float(settings.limits.ceiling)
        gauges = {"cordwood_memory_bytes": resident_bytes, "cordwood_memory_ceiling_bytes": lambda: ceiling}
        metrics = Metrics(cordwood.__version__, gauges)
        log = JsonLines(sys.stderr.buffer, settings.web.log_level)
        return cls(Observer((log, metrics)), metrics, log)


def resident_bytes() -> float:
    """Memory that the process holds now; where the system does not tell, the most it ever held."""
    try:
        return float(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
