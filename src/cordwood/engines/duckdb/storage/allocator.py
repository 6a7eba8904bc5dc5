"""Return freed memory to the operating system, from the C library's allocator and from DuckDB's jemalloc.

Also measures how much of the C library's heap is in use, which includes all memory that DuckDB does not count.
"""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import ClassVar

_EVERY_ARENA = b"arena.4096.purge"


class _Heap(ctypes.Structure):
    """The result of `mallinfo2`; `uordblks` is the number of bytes in use."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def _function(library: str | None, name: str, result: type = ctypes.c_int) -> Callable[..., object] | None:
    """Return a function of a C library, or None if the library lacks it."""
    try:
        found = getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError):
        return None
    found.restype = result
    function: Callable[..., object] = found
    return function


def _place_of_duckdb() -> str | None:
    spec = find_spec("_duckdb")
    return spec.origin if spec else None


_trim = _function(None, "malloc_trim")
_control = _function(_place_of_duckdb(), "duckdb_je_mallctl")
_tell = _function(None, "mallinfo2", _Heap)


def release_free_memory() -> None:
    if _trim is not None:
        _trim(0)
    if _control is not None:
        _control(_EVERY_ARENA, None, None, None, 0)


def heap_bytes() -> int | None:
    """Return the bytes in use of the C library's heap; None if the library does not report them."""
    found = _tell() if _tell is not None else None
    return int(found.uordblks) if isinstance(found, _Heap) else None
