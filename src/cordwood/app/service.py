"""The lifecycle of the service: own the folder, listen, open, serve, reload, drain, close."""

import asyncio
import gc
import importlib
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import uvloop

from cordwood.app.background import SWEEP_SECONDS, WRITE_USES_SECONDS, every, settled
from cordwood.app.compose import Components, build, connections_allowed, web_options
from cordwood.app.configured_keys import MadeKeys, fixed_key
from cordwood.app.engine_process import EngineHost, fork_server
from cordwood.app.listener import Server, listen, server, url_of
from cordwood.app.observability import FLUSH_SECONDS, LOOK_SECONDS, Watch
from cordwood.app.process_memory import limit_heap, page_out_code
from cordwood.errors import Fault
from cordwood.folder import DataFolder, Outcome, Owner
from cordwood.model.timestamps import now_us
from cordwood.observe.observation import Noted
from cordwood.processes.fork_server import ForkServer
from cordwood.settings.settings import Settings
from cordwood.web.lifecycle import Lifecycle
from cordwood.web.routes import application

if TYPE_CHECKING:
    from cordwood.listeners.listeners import Listeners

_POLL_SECONDS = 0.02


class Ready(msgspec.Struct, frozen=True):
    """What the operator is told when the service is ready."""

    owner: Owner
    folder: Path
    components: Components
    made_keys: MadeKeys | None
    seconds: float
    # The protocols and addresses of the listeners beside HTTP.
    listeners: tuple[str, ...] = ()


async def _nothing(_: Components) -> None:
    return None


class Hooks(msgspec.Struct, frozen=True):
    """Callbacks: `fill` runs before requests are accepted, `beside` during service, `on_quit` on a forced exit."""

    on_ready: Callable[[Ready], None]
    watch: Watch
    fill: Callable[[Components], Coroutine[None, None, None]] = _nothing
    beside: Callable[[Components], Coroutine[None, None, None]] = _nothing
    on_quit: Callable[[], None] = lambda: None


def serve(settings: Settings, hooks: Hooks, began: float) -> None:
    """Serve until asked to stop; an error during the start is raised after everything was closed.

    `began` is the monotonic time at which the process started.
    """
    limit_heap(settings.limits.ceiling)
    # Fork before the lock file and the listening socket exist, so that child processes do not inherit them.
    forks = fork_server() if settings.engine == "duckdb" else None
    try:
        _serve(settings, hooks, began, forks)
    finally:
        if forks is not None:
            forks.close()


def _serve(settings: Settings, hooks: Hooks, began: float, forks: ForkServer | None) -> None:
    folder = DataFolder(Path(settings.serve.data_dir))
    with folder.owned() as ownership:
        listener = listen(settings.web.host, settings.web.port)
        listeners = _bound_listeners(settings)
        life = _Life(settings, hooks, folder, ownership.announce(url_of(listener)), began, forks, listeners)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(life.run(listener))


def _bound_listeners(settings: Settings) -> "Listeners | None":
    """Bind the listeners beside HTTP. Without any, their modules are not imported."""
    if not (settings.listen.syslog or settings.listen.fluent):
        return None
    bind = importlib.import_module("cordwood.app.socket_listeners").bind_listeners
    return cast("Listeners", bind(settings))


class _Life(msgspec.Struct):
    """One run of the service, from its start to its last response."""

    settings: Settings
    hooks: Hooks
    folder: DataFolder
    owner: Owner
    began: float
    forks: ForkServer | None
    listeners: "Listeners | None" = None
    lifecycle: Lifecycle = msgspec.field(default_factory=Lifecycle)
    asked_to_stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    asked_to_reload: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def run(self, listener: socket.socket) -> None:
        self._take_signals()
        http = self._server()
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        try:
            components = await asyncio.to_thread(self._build)
            try:
                await self._serve(components, http, serving)
            finally:
                await components.services.answers.close()
                await asyncio.to_thread(components.close)
        finally:
            http.should_exit = True
            await serving
            if self.listeners is not None:
                self.listeners.close()
            self.hooks.watch.log.flush()

    def _server(self) -> Server:
        watch = self.hooks.watch
        routes = application(self.lifecycle, watch.observer, web_options(self.settings), watch.metrics)
        beside = self.listeners.most_connections if self.listeners is not None else 0
        return server(routes, self.settings.web.drain_time, connections_allowed(self.settings), beside)

    def _build(self) -> Components:
        local = fixed_key("private", self.owner.key, "local")
        host = None if self.forks is None else self._host(self.forks)
        components = build(self.settings, self.folder, self.hooks.watch.observer, (local,), host=host)
        if components.hosted is not None:
            self.hooks.watch.memory.pids_below = components.hosted.pids
            quarantined = components.services.answers.quarantined
            self.hooks.watch.metrics.gauges["cordwood_quarantined_queries"] = lambda: float(quarantined())
        return components

    def _host(self, forks: ForkServer) -> EngineHost:
        def on_state(reason: str | None) -> None:
            self.lifecycle.set_unready("engine", reason)

        return EngineHost(forks, self.settings.limits.ceiling, on_state)

    async def _serve(self, components: Components, http: Server, serving: "asyncio.Task[None]") -> None:
        await self.hooks.fill(components)
        self.lifecycle.open(components.services)
        made_keys = await asyncio.to_thread(components.made_keys)
        await self._start_listeners(components)
        names = tuple(self.listeners.names) if self.listeners is not None else ()
        seconds = time.monotonic() - self.began
        self.hooks.on_ready(Ready(self.owner, self.folder.path, components, made_keys, seconds, names))
        # Objects that exist now live until the end: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        page_out_code()
        beside = [asyncio.create_task(work) for work in self._beside(components)]
        try:
            await self.asked_to_stop.wait()
            await self._drain(components, http, serving)
        finally:
            gc.unfreeze()
            await settled(beside)

    async def _start_listeners(self, components: Components) -> None:
        listeners = self.listeners
        if listeners is not None:
            await listeners.start(components.services, self.hooks.watch.observer)
            gauges = self.hooks.watch.metrics.gauges
            gauges["cordwood_listener_connections"] = lambda: float(listeners.open_connections)

    def _beside(self, components: Components) -> list[Coroutine[None, None, None]]:
        observer = self.hooks.watch.observer
        return [
            components.services.answers.warm(),
            self._reloads(components),
            self.hooks.beside(components),
            every(SWEEP_SECONDS, lambda: components.engine.sweep(now_us()), observer),
            every(FLUSH_SECONDS, self.hooks.watch.log.flush, observer),
            every(LOOK_SECONDS, self.hooks.watch.disk.look, observer),
            every(WRITE_USES_SECONDS, components.keys.write_uses, observer),
        ]

    async def _drain(self, components: Components, http: Server, serving: "asyncio.Task[None]") -> None:
        """Refuse new requests, readiness first; finish the running ones; then stop listening."""
        self.lifecycle.drain()
        if components.hosted is not None:
            # Whatever is running then, such as a query or a flush: acknowledged events are durable.
            components.hosted.kill_after(self.settings.web.drain_time)
        deadline = time.monotonic() + self.settings.web.drain_time
        if self.listeners is not None:
            await self.listeners.stop(self.settings.web.drain_time)
        while http.under_way and time.monotonic() < deadline:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(_POLL_SECONDS)
        http.should_exit = True
        await serving

    async def _reloads(self, components: Components) -> None:
        while True:
            await self.asked_to_reload.wait()
            self.asked_to_reload.clear()
            outcome = await asyncio.to_thread(_reload, components, self.listeners)
            self.folder.tell_outcome(outcome)
            self.hooks.watch.observer.note(Noted(message=outcome.message, level="info" if outcome.ok else "error"))

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        had_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, had_terminal)

    def _hang_up(self, had_terminal: bool) -> None:  # noqa: FBT001 - handlers take what they are given by place
        """Reload the files; stop instead if the terminal was closed, since nothing else would stop the process."""
        if had_terminal and not has_terminal():
            self._stop(signal.SIGHUP)
        else:
            self.asked_to_reload.set()

    def _stop(self, number: int) -> None:
        if self.asked_to_stop.is_set():
            # The second signal: acknowledged events are durable, so nothing else has to be waited for.
            self.hooks.on_quit()
            os._exit(128 + number)
        self.asked_to_stop.set()


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _reload(components: Components, listeners: "Listeners | None") -> Outcome:
    try:
        if listeners is not None:
            listeners.reload_certificates()
        contents = components.reload()
    except Fault as fault:
        return Outcome(time.time(), ok=False, message=f"Not reloaded, all stays as it was:\n{fault.told()}")
    told = f"Reloaded: {len(contents.endpoints)} endpoints, {len(contents.streams)} streams."
    return Outcome(time.time(), ok=True, message=told)
