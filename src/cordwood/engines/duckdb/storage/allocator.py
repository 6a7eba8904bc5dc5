"""Gives freed memory back to the machine: the interpreter's, and that of the allocator which DuckDB brings with it.

And tells what is in use of the C library's, where all lies that the engine does not count.
"""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import ClassVar

_EVERY_ARENA = b"arena.4096.purge"


class _Heap(ctypes.Structure):
    """What `mallinfo2` tells; `uordblks` is in use."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def _function(library: str | None, name: str, result: type = ctypes.c_int) -> Callable[..., object] | None:
    """None where the library has it not, or is none of C."""
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
    """In use now, texts and the engine's own notes alike; None where the C library does not tell."""
    found = _tell() if _tell is not None else None
    return int(found.uordblks) if isinstance(found, _Heap) else None
