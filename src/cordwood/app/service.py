"""Run the service: lock the data folder, listen, open the components, serve, reload, drain, and close."""

import asyncio
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
import uvicorn
import uvloop

from cordwood.alerts.evaluation import GroupPhase
from cordwood.app.compose import Observability, ServiceComponents, build_components
from cordwood.app.configuration import CreatedKeys, connection_limit, create_fixed_key, web_options
from cordwood.app.engine_process import EngineLauncher, configure_malloc, page_out_libraries, start_fork_server
from cordwood.errors import BadSetting, Fault
from cordwood.folder import DataFolder, FolderOwner, ReloadOutcome
from cordwood.model.timestamps import now_us
from cordwood.observe.observation import Observer, OperatorMessage
from cordwood.processes.fork_server import ForkServer
from cordwood.settings.settings import Settings
from cordwood.web.asgi import Application
from cordwood.web.http_application import HttpApplication
from cordwood.web.http_protocol import ConnectionTable, HttpProtocol, limit_connections_by_file_descriptors
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle

if TYPE_CHECKING:
    from cordwood.listeners.listeners import Listeners

_LISTEN_BACKLOG_CONNECTIONS = 2048
_KEEP_ALIVE_SECONDS = 75
_LOG_FLUSH_INTERVAL_SECONDS = 0.5
_DISK_SAMPLE_INTERVAL_SECONDS = 20.0


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; raise BadSetting if that is not possible."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bind_socket(*addresses[0])
    except OSError as problem:
        reason = problem.strerror or str(problem)
        hint = "Choose another address with --host or --port."
        raise BadSetting(f"The service cannot listen on {host}, port {port}: {reason}.", hint=hint) from problem


def _bind_socket(family: int, kind: int, protocol: int, _name: str, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Let "::" accept IPv4 connections as well.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(_LISTEN_BACKLOG_CONNECTIONS)
        listener.settimeout(0)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL at which clients on this machine can reach a listening socket."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)  # noqa: S104 - a name, not a bind
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


class _HttpServer(uvicorn.Server):
    """A uvicorn server that installs no signal handlers, because `_ServiceRun` handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def open_request_count(self) -> int:
        return len(self.server_state.tasks)


def _create_http_server(
    application: Application, drain_seconds: float, connections: int, other_connections: int = 0
) -> _HttpServer:
    """Create the HTTP server, which has at most `connections` open connections.

    Other listeners use `other_connections`. If there are too few file descriptors for both, the HTTP server has fewer
    connections.
    """
    table = ConnectionTable(
        max(16, limit_connections_by_file_descriptors(connections + other_connections) - other_connections)
    )
    config = uvicorn.Config(
        application,
        lifespan="off",
        interface="asgi3",
        http=cast(type[asyncio.Protocol], partial(HttpProtocol, table)),
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    return _HttpServer(config)


_DRAIN_POLL_SECONDS = 0.02
# The time for which a thread may hold the interpreter lock while another thread waits for it. With Python's default of
# 5 ms, answers took twice as long while other threads compiled queries or decoded bodies, as measured by `python -m
# bench.beside_compiling`.
THREAD_SWITCH_INTERVAL_SECONDS = 0.001

_RETENTION_CHECK_INTERVAL_SECONDS = 30.0
_KEY_USE_WRITE_INTERVAL_SECONDS = 5.0


class StartupSummary(msgspec.Struct, frozen=True):
    """The facts that are printed once the service is ready."""

    owner: FolderOwner
    data_folder_path: Path
    components: ServiceComponents
    created_keys: CreatedKeys | None
    startup_seconds: float
    # A text for each listener other than HTTP, with its protocol and address.
    listener_names: tuple[str, ...] = ()


async def _do_nothing(_: ServiceComponents) -> None:
    return None


class ServiceHooks(msgspec.Struct, frozen=True):
    """Callbacks by which a command extends the service, and the option `offers_sign_in`.

    `before_ready` runs before requests are accepted, and `on_ready` as soon as the service is ready. `background_work`
    runs while the service runs. `before_forced_exit` runs before the process exits at once, after a second signal. If
    `offers_sign_in` is true, the service has the page /sign-in, to which the demo prints a link.
    """

    on_ready: Callable[[StartupSummary], None]
    observability: Observability
    before_ready: Callable[[ServiceComponents], Coroutine[None, None, None]] = _do_nothing
    background_work: Callable[[ServiceComponents], Coroutine[None, None, None]] = _do_nothing
    before_forced_exit: Callable[[], None] = lambda: None
    offers_sign_in: bool = False


def serve(settings: Settings, hooks: ServiceHooks, started_at: float) -> None:
    """Run the service until a signal stops it. If the start fails, close all components and raise the error.

    `started_at` is the monotonic time at which the process started. The printed start-up time counts from there.
    """
    configure_malloc(settings.limits.memory_ceiling)
    # Start the fork server before the lock file and the listening socket exist, so that child processes do not inherit
    # them.
    forker = start_fork_server() if settings.engine == "duckdb" else None
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_SECONDS)
    try:
        _lock_folder_and_serve(settings, hooks, started_at, forker)
    finally:
        if forker is not None:
            forker.close()


def _lock_folder_and_serve(
    settings: Settings, hooks: ServiceHooks, started_at: float, forker: ForkServer | None
) -> None:
    folder = DataFolder(Path(settings.serve.data_dir))
    with folder.take_ownership() as ownership:
        listener = open_listener(settings.web.host, settings.web.port)
        listeners = _bind_listeners(settings)
        run = _ServiceRun(
            settings, hooks, folder, ownership.publish_owner(url_of(listener)), started_at, forker, listeners
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.run(listener))


def _bind_listeners(settings: Settings) -> "Listeners | None":
    """Bind the listeners for syslog and Fluent; return None, and import no module, if neither is configured."""
    if not (settings.listen.syslog or settings.listen.fluent):
        return None
    bind = importlib.import_module("cordwood.listeners.listeners").bind_listeners
    return cast("Listeners", bind(settings))


class GrpcListener(Protocol):
    """The interface of the server for OTLP over gRPC. Its module is imported only if `listen.otlp_grpc` is set."""

    listener_names: list[str]
    max_connections: int

    async def stop(self, seconds: float) -> None: ...


async def start_otlp_grpc_listener(settings: Settings, routes: HttpApplication) -> GrpcListener | None:
    """Start the server for OTLP over gRPC if `listen.otlp_grpc` has an address for it; else return None."""
    if not settings.listen.otlp_grpc:
        return None
    # Without this environment variable, gRPC writes a line to standard error for each failed handshake. gRPC reads the
    # variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # noqa: TID251 - it is not a setting of ours
    try:
        module = importlib.import_module("cordwood.listeners.otlp_grpc")
    except ModuleNotFoundError as missing:
        hint = "Install it: pip install 'cordwood[grpc]'."
        raise BadSetting("listen.otlp_grpc needs grpcio, which is not installed.", hint=hint) from missing
    return cast("GrpcListener", await module.start_otlp_grpc_server(settings, routes))


class _ServiceRun(msgspec.Struct):
    """One run of the service, from its start to its last response."""

    settings: Settings
    hooks: ServiceHooks
    data_folder: DataFolder
    owner: FolderOwner
    started_at: float
    fork_server: ForkServer | None
    listeners: "Listeners | None" = None
    lifecycle: Lifecycle = msgspec.field(default_factory=Lifecycle)
    stop_requested: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    reload_requested: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    grpc_listener: "GrpcListener | None" = None

    async def run(self, listener: socket.socket) -> None:
        self._add_signal_handlers()
        observability = self.hooks.observability
        options = msgspec.structs.replace(web_options(self.settings), offers_sign_in=self.hooks.offers_sign_in)
        routes = create_application(self.lifecycle, observability.observer, options, observability.metrics)
        self.grpc_listener = await start_otlp_grpc_listener(self.settings, routes)
        http = self._create_http_server(routes)
        server_task = asyncio.create_task(http.serve(sockets=[listener]))
        try:
            components = await asyncio.to_thread(self._build_components)
            try:
                await self._serve_until_stopped(components, http, server_task)
            finally:
                await components.services.query_service.close()
                await asyncio.to_thread(components.close)
        finally:
            http.should_exit = True
            await server_task
            if self.listeners is not None:
                self.listeners.close_sockets()
            if self.grpc_listener is not None:
                await self.grpc_listener.stop(0)
            self.hooks.observability.log.flush()

    def _create_http_server(self, routes: HttpApplication) -> _HttpServer:
        other_connections = sum(
            listener.max_connections for listener in (self.listeners, self.grpc_listener) if listener is not None
        )
        return _create_http_server(
            routes, self.settings.web.drain_time, connection_limit(self.settings), other_connections
        )

    def _build_components(self) -> ServiceComponents:
        local = create_fixed_key("private", self.owner.key, "local")
        host = None if self.fork_server is None else self._create_engine_launcher(self.fork_server)
        components = build_components(
            self.settings, self.data_folder, self.hooks.observability.observer, (local,), host=host
        )
        if components.hosted_engine is not None:
            self.hooks.observability.memory_meter.get_child_pids = components.hosted_engine.pids
            quarantined = components.services.query_service.quarantined_query_count
            self.hooks.observability.metrics.gauge_readers["cordwood_quarantined_queries"] = lambda: float(
                quarantined()
            )
        return components

    def _create_engine_launcher(self, forker: ForkServer) -> EngineLauncher:
        def on_availability_change(reason: str | None) -> None:
            self.lifecycle.set_component_unready_reason("engine", reason)

        return EngineLauncher(forker, self.settings.limits.memory_ceiling, on_availability_change)

    async def _serve_until_stopped(
        self, components: ServiceComponents, http: _HttpServer, server_task: "asyncio.Task[None]"
    ) -> None:
        await self.hooks.before_ready(components)
        self.lifecycle.set_ready(components.services)
        tails = components.services.tail_service
        self.hooks.observability.metrics.gauge_readers["cordwood_followers"] = lambda: float(tails.follower_count)
        alerts = components.services.alert_service
        for phase in (GroupPhase.PENDING, GroupPhase.FIRING):
            self.hooks.observability.metrics.gauge_readers[f"cordwood_alerts_{phase}"] = partial(
                alerts.count_groups, phase
            )
        created_keys = await asyncio.to_thread(components.create_first_keys)
        await self._start_listeners(components)
        names = tuple(
            name
            for listener in (self.listeners, self.grpc_listener)
            if listener is not None
            for name in listener.listener_names
        )
        seconds = time.monotonic() - self.started_at
        self.hooks.on_ready(StartupSummary(self.owner, self.data_folder.path, components, created_keys, seconds, names))
        # The objects that exist now live as long as the service, so exempt them from garbage collection, which would
        # scan them again and again.
        gc.collect()
        gc.freeze()
        page_out_libraries()
        background_tasks = [asyncio.create_task(work) for work in self._background_work(components)]
        try:
            await self.stop_requested.wait()
            await self._drain(components, http, server_task)
        finally:
            gc.unfreeze()
            await _cancel_all(background_tasks)

    async def _start_listeners(self, components: ServiceComponents) -> None:
        listeners = self.listeners
        if listeners is not None:
            await listeners.start(components.services, self.hooks.observability.observer)
            gauges = self.hooks.observability.metrics.gauge_readers
            gauges["cordwood_listener_connections"] = lambda: float(listeners.open_connection_count)

    def _background_work(self, components: ServiceComponents) -> list[Coroutine[None, None, None]]:
        observer = self.hooks.observability.observer
        return [
            components.services.query_service.run_refreshes(),
            components.services.alert_service.run(),
            self._reload_on_request(components),
            self.hooks.background_work(components),
            _run_periodically(
                _RETENTION_CHECK_INTERVAL_SECONDS, lambda: components.engine.delete_expired_events(now_us()), observer
            ),
            _run_periodically(_LOG_FLUSH_INTERVAL_SECONDS, self.hooks.observability.log.flush, observer),
            _run_periodically(
                _DISK_SAMPLE_INTERVAL_SECONDS, self.hooks.observability.disk_forecast.take_sample, observer
            ),
            _run_periodically(_KEY_USE_WRITE_INTERVAL_SECONDS, components.key_store.write_last_use_times, observer),
        ]

    async def _drain(self, components: ServiceComponents, http: _HttpServer, server_task: "asyncio.Task[None]") -> None:
        """Refuse new requests, finish the running ones within the drain time, then stop listening."""
        self.lifecycle.start_draining()
        components.services.tail_service.close()
        if components.hosted_engine is not None:
            # Kill the engine if a query or flush still runs after the drain time. No acknowledged event is lost,
            # because these events are durable.
            components.hosted_engine.kill_after(self.settings.web.drain_time)
        deadline = time.monotonic() + self.settings.web.drain_time
        if self.listeners is not None:
            await self.listeners.stop(self.settings.web.drain_time)
        if self.grpc_listener is not None:
            await self.grpc_listener.stop(self.settings.web.drain_time)
        while http.open_request_count and time.monotonic() < deadline:  # noqa: ASYNC110 - the server has no event for closed requests
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        http.should_exit = True
        await server_task

    async def _reload_on_request(self, components: ServiceComponents) -> None:
        while True:
            await self.reload_requested.wait()
            self.reload_requested.clear()
            outcome = await asyncio.to_thread(_reload_certificates_and_definitions, components, self.listeners)
            self.data_folder.publish_reload_outcome(outcome)
            self.hooks.observability.observer.record(
                OperatorMessage(message=outcome.message, level="info" if outcome.ok else "error")
            )

    def _add_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        had_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._request_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._handle_hangup, had_terminal)

    def _handle_hangup(self, had_terminal: bool) -> None:  # noqa: FBT001 - callers pass arguments by position
        """Handle SIGHUP: stop the service if its terminal was closed, otherwise reload the files.

        When a terminal is closed, its processes get no other signal that would stop them.
        """
        if had_terminal and not has_terminal():
            self._request_stop(signal.SIGHUP)
        else:
            self.reload_requested.set()

    def _request_stop(self, number: int) -> None:
        if self.stop_requested.is_set():
            # At a second signal, exit at once. No acknowledged event is lost, because these events are durable.
            self.hooks.before_forced_exit()
            os._exit(128 + number)
        self.stop_requested.set()


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _reload_certificates_and_definitions(components: ServiceComponents, listeners: "Listeners | None") -> ReloadOutcome:
    try:
        if listeners is not None:
            listeners.reload_certificates()
        contents = components.reload_definitions()
    except Fault as fault:
        return ReloadOutcome(
            time.time(),
            ok=False,
            message=f"Not reloaded, the old configuration stays in force:\n{fault.one_line_text()}",
        )
    message = f"Reloaded: {len(contents.endpoints)} endpoints, {len(contents.streams)} streams."
    return ReloadOutcome(time.time(), ok=True, message=message)


async def _run_periodically(seconds: float, work: Callable[[], object], observer: Observer) -> None:
    """Run `work` in a thread repeatedly, after pauses of `seconds`, until cancelled.

    If `work` raises a Fault, log it and continue.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(work)
        except Fault as fault:
            observer.record(OperatorMessage(message=fault.one_line_text(), level="warning"))


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    pending: list[Awaitable[None]] = list(tasks)
    await asyncio.gather(*pending, return_exceptions=True)
