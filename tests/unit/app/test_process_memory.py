"""Limits on the number of glibc's malloc arenas, by processors and memory."""

import os
import platform
import subprocess
import sys

import pytest

_ALLOCATING_PROGRAM = """
import ctypes, threading
from cordwood.app.engine_process import configure_malloc

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
configure_malloc(CEILING)
together = threading.Barrier(THREADS)

def allocate():
    together.wait()
    libc.malloc(ctypes.c_size_t(5000))
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(THREADS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""


PROCESSORS = os.cpu_count() or 1

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="these are settings of glibc")


def _arena_count(*, threads: int, ceiling: int = 2**40) -> int:
    program = _ALLOCATING_PROGRAM.replace("THREADS", str(threads)).replace("CEILING", str(ceiling))
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return output.count("<heap nr=")


def test_each_of_a_few_threads_has_its_own_arena() -> None:
    # There is one arena for the main thread, and one for each other thread.
    assert _arena_count(threads=2) == 3


def test_the_number_of_arenas_is_limited_by_processors() -> None:
    assert _arena_count(threads=3 * PROCESSORS + 10) == 3 * PROCESSORS


def test_the_number_of_arenas_is_limited_by_memory() -> None:
    assert _arena_count(threads=10, ceiling=64 * 2**20) == 2
