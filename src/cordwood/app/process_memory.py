"""The memory of the process: return freed memory to the system, and page out code that only the start has run."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# With a small ceiling, large allocations (bodies, columns, WAL records) are mapped and unmapped individually. With a
# larger ceiling their pages are reused, because queries read compressed columns in blocks of two megabytes and more.
_LARGE_SHARE = 256
_MIN_MMAP_BYTES, _MAX_MMAP_BYTES = 2**20, 4 * 2**20
# Threads that share a malloc arena contend for it: with two arenas in all, short queries took up to a quarter longer.
# Each arena retains freed memory, so their number is limited by the ceiling as well.
_ARENAS_PER_PROCESSOR = 3
_MEMORY_PER_ARENA = 32 * 2**20


def limit_heap(ceiling: int) -> None:
    """Configure malloc. Call it before any thread starts. It does nothing for other C libraries than glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mmap_threshold = min(max(_MIN_MMAP_BYTES, ceiling // _LARGE_SHARE), _MAX_MMAP_BYTES)
    mallopt(_ARENA_MAX, min(_ARENAS_PER_PROCESSOR * (os.cpu_count() or 1), ceiling // _MEMORY_PER_ARENA))
    mallopt(_MMAP_THRESHOLD, mmap_threshold)
    mallopt(_TRIM_THRESHOLD, 4 * mmap_threshold)


_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4


def page_out_libraries() -> None:
    """Page out the code of shared libraries. Pages that are used again are read back from their files."""
    with suppress(AttributeError, OSError):
        madvise = ctypes.CDLL(None).madvise
        for start, end in _code_ranges():
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)


def _code_ranges() -> Iterator[tuple[int, int]]:
    """Yield the address ranges of executable mappings of shared libraries."""
    for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        address_range, rights, *_, name = line.split(maxsplit=5)
        if rights == "r-xp" and ".so" in name:
            start, _, end = address_range.partition("-")
            yield int(start, 16), int(end, 16)
