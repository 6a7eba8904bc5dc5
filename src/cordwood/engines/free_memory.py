"""Give freed memory from the C library's allocator back to the operating system, if the library has `malloc_trim`."""

import ctypes
from collections.abc import Callable


def load_library_function(library: str | None, name: str, result: type = ctypes.c_int) -> Callable[..., object] | None:
    """Return a function of a C library, or None if the library lacks it."""
    try:
        symbol = getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError):
        return None
    symbol.restype = result
    function: Callable[..., object] = symbol
    return function


_malloc_trim = load_library_function(None, "malloc_trim")


def trim_heap() -> None:
    if _malloc_trim is not None:
        _malloc_trim(0)
