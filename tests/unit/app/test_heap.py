"""What the C library is told about memory."""

import os
import platform
import subprocess
import sys

import pytest

_MANY_ALLOCATE = """
import ctypes, threading
from cordwood.app.process_memory import limit_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
limit_heap(CEILING)
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


def _arenas(*, threads: int, ceiling: int = 2**40) -> int:
    program = _MANY_ALLOCATE.replace("THREADS", str(threads)).replace("CEILING", str(ceiling))
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return told.count("<heap nr=")


def test_the_threads_of_a_query_do_not_wait_for_each_other_to_allocate() -> None:
    # That of the main thread, and one for each.
    assert _arenas(threads=2) == 3


def test_more_threads_than_that_share_what_was_freed() -> None:
    assert _arenas(threads=3 * PROCESSORS + 10) == 3 * PROCESSORS


def test_a_low_ceiling_has_them_share_sooner() -> None:
    assert _arenas(threads=10, ceiling=64 * 2**20) == 2
