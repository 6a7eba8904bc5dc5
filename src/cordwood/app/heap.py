"""What the process keeps in memory beyond what it uses: little of what it freed, and no code that only the start ran."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Numbers of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# Where there is little memory, a body, a column, a record of the journal is mapped by itself, and unmapped when it goes.
# Where there is enough, its pages are used again: a question reads compressed texts in pieces of two megabytes and more.
_LARGE_SHARE = 256
_LEAST_LARGE, _MOST_LARGE = 2**20, 4 * 2**20
# Threads of one query that share an arena wait for one another: with two in all it was chance whether they did,
# and cost a short question a quarter of its time. Each arena keeps some of what was freed in it: no more of them
# than the ceiling has room for.
_ARENAS_OF_A_PROCESSOR = 3
_CEILING_OF_AN_ARENA = 32 * 2**20


def keep_heap_small(ceiling: int) -> None:
    """To be called before there are threads; where the C library is another one, nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    large = min(max(_LEAST_LARGE, ceiling // _LARGE_SHARE), _MOST_LARGE)
    mallopt(_ARENA_MAX, min(_ARENAS_OF_A_PROCESSOR * (os.cpu_count() or 1), ceiling // _CEILING_OF_AN_ARENA))
    mallopt(_MMAP_THRESHOLD, large)
    mallopt(_TRIM_THRESHOLD, 4 * large)


_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4


def let_go_of_code() -> None:
    """The pages of libraries' code that were read so far; those that are run again come back from the file by themselves."""
    with suppress(AttributeError, OSError):
        madvise = ctypes.CDLL(None).madvise
        for start, end in _code():
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)


def _code() -> Iterator[tuple[int, int]]:
    """Where it lies: mapped from a file to be run, and never written to."""
    for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        place, rights, *_, name = line.split(maxsplit=5)
        if rights == "r-xp" and ".so" in name:
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)
