"""Return freed memory from the C library's allocator to the operating system, if the library has `malloc_trim`."""

import ctypes
from collections.abc import Callable


def load_library_function(library: str | None, name: str, result: type = ctypes.c_int) -> Callable[..., object] | None:
    """Return the function `name` of a C library; None if the library or the function does not exist."""
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
