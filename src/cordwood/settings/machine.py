"""How much memory this machine gives a process: the smaller of what it has and what the cgroup allows."""

from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LEAST_CEILING = 256 * 10**6


def allowed_memory() -> int | None:
    found = [limit for limit in (_machine_memory(), *map(_cgroup_memory, _CGROUP_LIMITS)) if limit is not None]
    return min(found, default=None)


def default_ceiling(allowed: int | None) -> int:
    """A quarter of what there is, in whole megabytes, but enough to work with."""
    return max(_LEAST_CEILING, (allowed or 0) // 4 // 10**6 * 10**6)


def _machine_memory() -> int | None:
    lines = (line.split() for line in _text("/proc/meminfo").splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[0] == "MemTotal:"), None)


def _cgroup_memory(file: str) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:
        return ""
