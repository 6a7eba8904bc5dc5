"""Run the embedded engine in a child process of the serving process, and keep the memory of both processes small.

For this purpose, malloc is configured to return freed memory to the system. Code that was only needed for the start is
paged out.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.hosted.engine_process import run_engine
from cordwood.engines.hosted.hosted_engine import EngineDialect, HostedEngine
from cordwood.engines.hosted.supervisor import AvailabilityCallback, LaunchOptions
from cordwood.observe.observation import OperatorMessage, RecordObservation, ignore_message, ignore_observation
from cordwood.processes.fork_server import ForkServer

# The numbers of parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# The mmap threshold is the memory ceiling divided by this number. An allocation of at least this size is mapped on its
# own, and its memory is returned to the system as soon as it is freed. With a small ceiling, large allocations (bodies,
# columns, WAL records) exceed the threshold. With a larger ceiling, the threshold is higher, so that malloc keeps freed
# memory for reuse: queries read compressed columns in blocks of two megabytes and more.
_MMAP_THRESHOLD_DIVISOR = 256
_MIN_MMAP_BYTES, _MAX_MMAP_BYTES = 2**20, 4 * 2**20
# Threads that share a malloc arena wait for each other: with only two arenas, short queries took up to a quarter
# longer. Each arena keeps freed memory, so the number of arenas is also limited in proportion to the memory ceiling.
_MALLOC_ARENAS_PER_PROCESSOR = 3
_MEMORY_CEILING_BYTES_PER_ARENA = 32 * 2**20


def configure_malloc(ceiling: int) -> None:
    """Configure malloc for the memory ceiling; do nothing if the C library has no `mallopt`.

    Call this function before any thread starts.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mmap_threshold = min(max(_MIN_MMAP_BYTES, ceiling // _MMAP_THRESHOLD_DIVISOR), _MAX_MMAP_BYTES)
    mallopt(
        _ARENA_MAX,
        min(_MALLOC_ARENAS_PER_PROCESSOR * (os.cpu_count() or 1), ceiling // _MEMORY_CEILING_BYTES_PER_ARENA),
    )
    mallopt(_MMAP_THRESHOLD, mmap_threshold)
    mallopt(_TRIM_THRESHOLD, 4 * mmap_threshold)


_MEMORY_MAPS_FILE = Path("/proc/self/maps")
_MADV_DONTNEED = 4  # MADV_DONTNEED of madvise(2)


def page_out_libraries() -> None:
    """Page out the code of shared libraries. If it is used again, the system reads it from the libraries' files."""
    with suppress(AttributeError, OSError):
        madvise = ctypes.CDLL(None).madvise
        for start, end in _library_code_address_ranges():
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _library_code_address_ranges() -> Iterator[tuple[int, int]]:
    """Yield the first address and the end of each range of addresses that has code of a shared library."""
    for line in _MEMORY_MAPS_FILE.read_text(encoding="utf-8", errors="replace").splitlines():
        address_range, rights, *_, name = line.split(maxsplit=5)
        if rights == "r-xp" and ".so" in name:
            start, _, end = address_range.partition("-")
            yield int(start, 16), int(end, 16)


# The estimated memory for the interpreter and for modules in the three processes (serving process, fork server,
# engine). It is allowed in addition to the memory ceiling.
_PYTHON_MODULES_MEMORY_BYTES = 80 * 10**6
_ENTRY_POINT = "cordwood.app.engine_process:engine_process"
# The delay after the engine is opened until code that was only needed for the start is paged out.
_PAGE_OUT_DELAY_SECONDS = 1.0


class EngineSettings(msgspec.Struct, frozen=True):
    """The settings that the engine's process receives when it starts."""

    folder: str
    options: DuckDBOptions


class EngineLauncher(msgspec.Struct, frozen=True):
    """Opens the engine in a new process, which the fork server forks.

    `on_availability_change` is called with a reason when the engine becomes unavailable, and with None when it becomes
    available.
    """

    fork_server: ForkServer
    memory_ceiling_bytes: int
    on_availability_change: AvailabilityCallback

    def launch_engine(self, folder: Path, options: DuckDBOptions, note: RecordObservation) -> HostedEngine:
        silent_options = msgspec.structs.replace(
            options, report_message=ignore_message, record_observation=ignore_observation
        )
        low_memory_options = msgspec.structs.replace(silent_options, starts_without_shredding=True)
        launch_options = LaunchOptions(
            EngineSettings(str(folder), silent_options),
            self.memory_ceiling_bytes + _PYTHON_MODULES_MEMORY_BYTES,
            self.on_availability_change,
            EngineSettings(str(folder), low_memory_options),
        )
        return HostedEngine(self.fork_server, launch_options, EngineDialect(DuckDBTarget(), _stored_events_sql), note)


def start_fork_server() -> ForkServer:
    """Start the fork server. Call this after all imports, and before the process starts a thread or opens a file."""
    server = ForkServer(_ENTRY_POINT)
    server.start()
    return server


def engine_process(link: socket.socket) -> None:
    """Run the engine in a forked process. The fork server calls this function."""
    os.umask(0o077)
    run_engine(link, _open_engine)


def _open_engine(settings: EngineSettings, note: RecordObservation) -> DuckDBEngine:
    def report_operator_message(text: str) -> None:
        note(OperatorMessage(message=text, level="warning"))

    options = msgspec.structs.replace(settings.options, report_message=report_operator_message, record_observation=note)
    engine = DuckDBEngine(Path(settings.folder), DuckDBTarget(), options)
    # Page out libraries with a delay, because the start needs their code a little longer: next, the tables of streams
    # are prepared.
    threading.Timer(_PAGE_OUT_DELAY_SECONDS, page_out_libraries).start()
    return engine


def _stored_events_sql(stream: str) -> str:
    return StreamTableStatements(stream).select_events()
