"""How the C library keeps the memory that the process lets go of: in few places, and the large pieces in none."""

import ctypes

# Numbers of mallopt(3).
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
# A body, a column, a record of the journal: each is mapped by itself, and unmapped when it goes.
_LARGE_BYTES = 1024 * 1024
_ARENAS = 2


def keep_heap_small() -> None:
    """To be called before there are threads; where the C library is another one, nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_ARENA_MAX, _ARENAS)
    mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
