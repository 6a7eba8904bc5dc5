"""Run the embedded engine in its own process, which is a child of the serving process."""

import os
import socket
import threading
from pathlib import Path

import msgspec

from cordwood.app.process_memory import page_out_libraries
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, Options
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.hosted.engine_process import run_engine
from cordwood.engines.hosted.hosted_engine import EngineDialect, HostedEngine
from cordwood.engines.hosted.supervisor import LaunchOptions, StateCallback
from cordwood.observe.observation import Note, Noted, note_nothing, report_nothing
from cordwood.processes.fork_server import ForkServer

# The estimated memory of the interpreter and of modules in the three processes, which does not count towards the
# ceiling.
_BASE_BYTES = 80 * 10**6
_ENTRY = "cordwood.app.engine_process:engine_process"
# The time after which code that was only needed for the start is paged out.
_STARTED_SECONDS = 1.0


class EngineSettings(msgspec.Struct, frozen=True):
    """The settings of the engine's process, whose log entries are sent to the service."""

    folder: str
    options: Options


class EngineHost(msgspec.Struct, frozen=True):
    """Opens the engine through a fork server. `on_state` is called with why the engine is unavailable, or None."""

    fork_server: ForkServer
    memory_ceiling: int
    on_state: StateCallback

    def open(self, folder: Path, options: Options, note: Note) -> HostedEngine:
        silent_options = msgspec.structs.replace(options, report=report_nothing, note=note_nothing)
        launch_options = LaunchOptions(
            EngineSettings(str(folder), silent_options), self.memory_ceiling + _BASE_BYTES, self.on_state
        )
        return HostedEngine(self.fork_server, launch_options, EngineDialect(DuckDBTarget(), _stored_events_sql), note)


def fork_server() -> ForkServer:
    """Start the fork server. Call it after all imports, and before there is a thread or an open file."""
    server = ForkServer(_ENTRY)
    server.start()
    return server


def engine_process(link: socket.socket) -> None:
    """Run the engine in a forked process: the entry point of the fork server."""
    os.umask(0o077)
    run_engine(link, _open_engine)


def _open_engine(settings: EngineSettings, note: Note) -> DuckDBEngine:
    def report(text: str) -> None:
        note(Noted(message=text, level="warning"))

    options = msgspec.structs.replace(settings.options, report=report, note=note)
    engine = DuckDBEngine(Path(settings.folder), DuckDBTarget(), options)
    # The engine is used only after its streams are prepared.
    threading.Timer(_STARTED_SECONDS, page_out_libraries).start()
    return engine


def _stored_events_sql(stream: str) -> str:
    return StreamTables(stream).select_events()
