"""Checks of the machine for `cordwood doctor`: disk, memory, open files and clock, as pure functions of the figures."""

import math
import resource
import shutil
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from cordwood.observe.disk import ADVICE, sentence
from cordwood.settings.machine import allowed_memory

# Group commits, flushes and spills need some space; below this, ingestion is about to fail.
_LEAST_DISK_BYTES = 256 * 10**6
_LEAST_DISK_SHARE = 0.1
_SOON_SECONDS, _FAR_SECONDS = 4 * 3600.0, 7 * 86_400.0
_LEAST_FILES, _GOOD_FILES = 256, 4096
_FIRST_SANE_YEAR = 2024
_MOST_SKEW_SECONDS = 60.0


class Verdict(StrEnum):
    GOOD = "ok"
    DOUBTFUL = "warning"
    BAD = "problem"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check, with advice if it is not good."""

    verdict: Verdict
    about: str
    seen: str
    advice: str = ""


def judge_disk(free_bytes: int, whole_bytes: int) -> Finding:
    seen = f"{_size(free_bytes)} of {_size(whole_bytes)} are free"
    if free_bytes < _LEAST_DISK_BYTES:
        return Finding(Verdict.BAD, "disk", seen, "Free some space, or shorten `retention` in the streams file.")
    if free_bytes < whole_bytes * _LEAST_DISK_SHARE:
        return Finding(Verdict.DOUBTFUL, "disk", seen, "Make room soon: when it is full, ingest answers 507.")
    return Finding(Verdict.GOOD, "disk", seen)


def judge_forecast(seconds_left: float) -> Finding | None:
    """Judge the service's own forecast; return None if the disk is not filling up."""
    if math.isinf(seconds_left):
        return None
    seen = sentence(seconds_left).rstrip(".")
    verdict = Verdict.BAD if seconds_left < _SOON_SECONDS else Verdict.DOUBTFUL
    return Finding(verdict, "disk", seen, ADVICE) if seconds_left < _FAR_SECONDS else None


def judge_memory(ceiling_bytes: int, allowed_bytes: int | None) -> Finding:
    """Judge the memory ceiling; `allowed_bytes` is the memory of the machine or the limit of the cgroup."""
    if allowed_bytes is None:
        return Finding(Verdict.DOUBTFUL, "memory", "what this machine has cannot be read", "Set --memory yourself.")
    seen = f"the ceiling is {_size(ceiling_bytes)}, {_size(allowed_bytes)} may be used"
    if ceiling_bytes > allowed_bytes:
        return Finding(Verdict.BAD, "memory", seen, "Lower limits.memory (--memory), or give the container more.")
    if ceiling_bytes > allowed_bytes * 0.8:
        return Finding(Verdict.DOUBTFUL, "memory", seen, "Leave a fifth to the rest of the machine: lower --memory.")
    return Finding(Verdict.GOOD, "memory", seen)


def judge_files(limit: int) -> Finding:
    seen = f"{limit} may be open at once"
    advice = f"Raise it: ulimit -n {_GOOD_FILES}, or LimitNOFILE={_GOOD_FILES} in the unit."
    if limit < _LEAST_FILES:
        return Finding(Verdict.BAD, "open files", seen, advice)
    return Finding(Verdict.DOUBTFUL if limit < 1024 else Verdict.GOOD, "open files", seen, advice)


def judge_clock(now: float, newest_file: float | None) -> Finding:
    """Judge the clock; a file that was modified in the future means that the clock went back."""
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "Set the clock, and have NTP keep it: events without a time get this one."
    if time.gmtime(now).tm_year < _FIRST_SANE_YEAR:
        return Finding(Verdict.BAD, "clock", seen, advice)
    if newest_file is not None and newest_file > now + _MOST_SKEW_SECONDS:
        ahead = f"{seen}, {newest_file - now:,.0f} s before the last write to the data folder"
        return Finding(Verdict.BAD, "clock", ahead, advice)
    return Finding(Verdict.GOOD, "clock", seen)


def judge_tokens(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the problems of the keys in the environment of dashboards and shippers."""
    public, older = environment.get("LOGFLARE_PUBLIC_ACCESS_TOKEN"), environment.get("LOGFLARE_API_KEY")
    private = environment.get("LOGFLARE_PRIVATE_ACCESS_TOKEN")
    if public and older and public != older:
        seen = "LOGFLARE_PUBLIC_ACCESS_TOKEN and LOGFLARE_API_KEY differ"
        yield Finding(Verdict.DOUBTFUL, "keys", seen, "The first is used: give both one value, or drop the older.")
    if private and private in (public, older):
        seen = "the private token is also the public one"
        yield Finding(Verdict.BAD, "keys", seen, "Shippers would hold a key to everything: make another for them.")


def machine(folder: Path, ceiling_bytes: int, pid: int | None) -> Iterator[Finding]:
    """Yield the findings about this machine; memory and open files are those of the process `pid`, else of this one."""
    place = _standing(folder)
    usage = shutil.disk_usage(place)
    yield judge_disk(usage.free, usage.total)
    yield judge_memory(ceiling_bytes, allowed_memory(pid=pid))
    yield judge_files(open_files(pid))
    yield judge_clock(time.time(), _newest(folder))


def open_files(pid: int | None) -> int:
    for line in _text(f"/proc/{pid}/limits").splitlines() if pid else ():
        if line.startswith("Max open files") and line.split()[3].isdecimal():
            return int(line.split()[3])
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _size(byte_count: int) -> str:
    return f"{byte_count / 1e9:,.1f} GB"


def _newest(folder: Path) -> float | None:
    try:
        return max((file.stat().st_mtime for file in folder.iterdir()), default=None)
    except OSError:
        return None


def _standing(folder: Path) -> Path:
    """Return the folder or its nearest existing parent."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii")
    except OSError:
        return ""
