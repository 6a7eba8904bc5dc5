"""The memory that the machine and the limits of its cgroups allow this process."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MIN_CEILING = 256 * 10**6


def allowed_memory(root: Path = Path("/"), pid: int | None = None) -> int | None:
    """Return the memory that the process `pid`, by default this one, may use, or None if it is unknown."""
    limits = (_number(file) for file in _limit_files(root, root / f"proc/{pid or 'self'}/cgroup"))
    found = [limit for limit in (_machine_memory(root), *limits) if limit is not None]
    return min(found, default=None)


def default_ceiling(allowed: int | None) -> int:
    """Return a quarter of the memory in whole megabytes, but at least the minimum."""
    return max(_MIN_CEILING, (allowed or 0) // 4 // 10**6 * 10**6)


def _machine_memory(root: Path) -> int | None:
    lines = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[0] == "MemTotal:"), None)


def _limit_files(root: Path, groups: Path) -> Iterator[Path]:
    """Yield the limit files of the process's cgroup and of its ancestors. A container sees its own cgroup as the root."""
    mounts = root / "sys/fs/cgroup"
    yield mounts / "memory.max"
    yield mounts / "memory/memory.limit_in_bytes"
    for line in _text(groups).splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        for part in _ancestors(group):
            if not controllers:
                yield mounts / part / "memory.max"
            elif "memory" in controllers.split(","):
                yield mounts / "memory" / part / "memory.limit_in_bytes"


def _ancestors(group: str) -> Iterator[PurePosixPath]:
    own = PurePosixPath(group.lstrip("/"))
    yield from (part for part in (own, *own.parents) if part.parts and ".." not in part.parts)


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
