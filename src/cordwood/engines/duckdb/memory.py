"""Gives freed memory back to the machine: the interpreter's, and that of the allocator which DuckDB brings with it."""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec

_EVERY_ARENA = b"arena.4096.purge"


def _function(library: str | None, name: str) -> Callable[..., object] | None:
    """None where the library has it not, or is none of C."""
    try:
        found: Callable[..., object] = getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError):
        return None
    return found


def _place_of_duckdb() -> str | None:
    spec = find_spec("_duckdb")
    return spec.origin if spec else None


_trim = _function(None, "malloc_trim")
_control = _function(_place_of_duckdb(), "duckdb_je_mallctl")


def let_go_of_memory() -> None:
    if _trim is not None:
        _trim(0)
    if _control is not None:
        _control(_EVERY_ARENA, None, None, None, 0)
