"""Return freed memory to the operating system, from the C library's allocator and from DuckDB's jemalloc.

Also measures how much of the C library's heap is in use, which includes all memory that DuckDB does not count.
"""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import ClassVar

_PURGE_ALL_ARENAS = b"arena.4096.purge"


class _MallInfo(ctypes.Structure):
    """The result of `mallinfo2`; `uordblks` is the number of bytes in use."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def _load_function(library: str | None, name: str, result: type = ctypes.c_int) -> Callable[..., object] | None:
    """Return a function of a C library, or None if the library lacks it."""
    try:
        symbol = getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError):
        return None
    symbol.restype = result
    function: Callable[..., object] = symbol
    return function


def _find_duckdb_library() -> str | None:
    spec = find_spec("_duckdb")
    return spec.origin if spec else None


_trim = _load_function(None, "malloc_trim")
_jemalloc_control = _load_function(_find_duckdb_library(), "duckdb_je_mallctl")
_read_mallinfo = _load_function(None, "mallinfo2", _MallInfo)


def release_free_memory() -> None:
    if _trim is not None:
        _trim(0)
    if _jemalloc_control is not None:
        _jemalloc_control(_PURGE_ALL_ARENAS, None, None, None, 0)


def heap_bytes() -> int | None:
    """Return the bytes in use of the C library's heap; None if the library does not report them."""
    info = _read_mallinfo() if _read_mallinfo is not None else None
    return int(info.uordblks) if isinstance(info, _MallInfo) else None
