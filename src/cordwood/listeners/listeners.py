"""The listeners for syslog and Fluent Forward.

Their sockets are bound to the addresses in the settings. They accept data once the service is ready. When the service
stops, they store what they have read.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from cordwood.errors import BadSetting, Fault
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.stream_mapping import read_stream_mapping
from cordwood.listeners.address import ListenAddress, bind_socket, read_syslog_and_fluent_addresses, with_bound_port
from cordwood.listeners.connection import ConnectionBudget, SenderConnection
from cordwood.listeners.event_writer import EventDestination, ListenerEventWriter
from cordwood.listeners.fluent import FluentConnectionHandler, FluentOptions, read_handshake_secrets
from cordwood.listeners.syslog import SyslogConnectionHandler, SyslogDatagramReceiver
from cordwood.observe.observation import ListenerOutcomeCounted, Observer, OperatorMessage
from cordwood.settings.settings import Settings
from cordwood.web.request_body import BodyBounds
from cordwood.web.services import Services

_ACCEPT_RETRY_SECONDS: Final = 0.2
# The minimum time between two warnings of the same kind to the operator, for example about dropped datagrams.
_MIN_SECONDS_BETWEEN_WARNINGS: Final = 10.0
# The memory that is assumed for each connection, to compute how many connections are allowed. A connection takes 64 KiB
# for unread data, and several times that for decoded events.
_ASSUMED_BYTES_PER_CONNECTION: Final = 2**20
_MAX_DEFAULT_CONNECTIONS: Final = 1000


class TlsFiles(msgspec.Struct, frozen=True):
    """The files for TLS: the certificate and key of the service, and the CA that issues the certificates of senders.

    If `client_ca_path` is empty, senders need no certificate.
    """

    certificate_path: str = ""
    private_key_path: str = ""
    client_ca_path: str = ""

    def create_context(self) -> ssl.SSLContext:
        """Return the TLS context; raise BadSetting if a file cannot be used."""
        if not self.certificate_path:
            raise BadSetting("listen.tls_certificate is needed for tls:// addresses.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the certificate, the key and the CA file into the context; raise BadSetting if a file cannot be used."""
        try:
            context.load_cert_chain(
                Path(self.certificate_path), Path(self.private_key_path) if self.private_key_path else None
            )
            if self.client_ca_path:
                context.load_verify_locations(Path(self.client_ca_path))
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as problem:
            raise BadSetting(f"The TLS files of listeners cannot be used: {problem}.") from problem


class ListenOptions(msgspec.Struct, frozen=True):
    """The listeners to open, where their events go, and their limits.

    `max_connections` is the limit on the open connections of all listeners together.
    """

    syslog_addresses: Sequence[ListenAddress]
    fluent_addresses: Sequence[ListenAddress]
    syslog_destination: EventDestination
    fluent_destination: EventDestination
    fluent_options: FluentOptions
    max_connections: int
    tls_files: TlsFiles = TlsFiles()

    @property
    def max_message_bytes(self) -> int:
        return self.fluent_options.max_item_bytes


def bind_listeners(settings: Settings) -> "Listeners":
    """Return the listeners, each bound to an address in the settings.

    Raise BadSetting if an address cannot be bound, or if the settings contradict each other.
    """
    listen = settings.listen
    mapping = read_stream_mapping(settings.ingest.stream_map, settings.ingest.default_stream)
    syslog, fluent = read_syslog_and_fluent_addresses(listen)
    if syslog and not (listen.syslog_stream or mapping.default_stream):
        raise BadSetting(
            "listen.syslog needs a stream: syslog senders cannot be told that their messages have no stream.",
            hint="Set listen.syslog_stream or ingest.default_stream.",
        )
    bounds = BodyBounds(
        settings.ingest.body_size, min(settings.ingest.inflated_size, settings.limits.memory_ceiling // 2)
    )
    return Listeners(
        ListenOptions(
            syslog_addresses=syslog,
            fluent_addresses=fluent,
            syslog_destination=EventDestination(BodyFormat.SYSLOG, listen.syslog_stream, listen.syslog_key, mapping),
            fluent_destination=EventDestination(BodyFormat.FLUENT, listen.fluent_stream, listen.fluent_key, mapping),
            fluent_options=FluentOptions(
                bounds,
                settings.ingest.event_size,
                read_handshake_secrets(listen.fluent_shared_key, listen.fluent_users),
            ),
            max_connections=_max_connections(settings),
            tls_files=TlsFiles(listen.tls_certificate, listen.tls_key, listen.tls_client_ca),
        )
    )


def _max_connections(settings: Settings) -> int:
    """Return the maximum number of open connections of all listeners together."""
    return settings.listen.connections or max(
        16, min(_MAX_DEFAULT_CONNECTIONS, settings.limits.memory_ceiling // _ASSUMED_BYTES_PER_CONNECTION)
    )


class _OpenListener(Protocol):
    """The interface of an open listener."""

    def stop(self) -> None:
        """Stop accepting and reading."""

    async def wait_until_ended(self) -> None:
        """Return once everything that was read is stored."""

    def abandon_unstored_events(self) -> None:
        """Give up the events that are not stored yet."""


class BoundListener(msgspec.Struct, frozen=True):
    """A listener with its bound socket. `body_format` is the format of the messages that it receives."""

    body_format: BodyFormat
    address: ListenAddress
    socket: socket.socket

    @property
    def name(self) -> str:
        return f"{self.body_format} {self.address}"


class Listeners:
    """The listeners of the service for syslog and Fluent Forward.

    Call `start`, and every method after it, on the event loop.
    """

    def __init__(self, options: ListenOptions) -> None:
        self._options = options
        self._tls_context: ssl.SSLContext | None = None
        if any(address.scheme == "tls" for address in (*options.syslog_addresses, *options.fluent_addresses)):
            self._tls_context = options.tls_files.create_context()
        self._bound_listeners: list[BoundListener] = []
        try:
            self._bind_addresses(BodyFormat.SYSLOG, "listen.syslog", options.syslog_addresses)
            self._bind_addresses(BodyFormat.FLUENT, "listen.fluent", options.fluent_addresses)
        except BadSetting:
            self.close_sockets()
            raise
        self._connection_budget = ConnectionBudget(options.max_connections)
        self._open_listeners: list[_OpenListener] = []
        self._event_writers: list[ListenerEventWriter] = []

    @property
    def listener_names(self) -> list[str]:
        """The name of each listener, which consists of its form and its address."""
        return [one.name for one in self._bound_listeners]

    @property
    def max_connections(self) -> int:
        """The maximum number of open connections of all listeners together."""
        return self._options.max_connections

    @property
    def open_connection_count(self) -> int:
        return len(self._connection_budget.open_connections)

    async def start(self, services: Services, observer: Observer) -> None:
        for bound in self._bound_listeners:
            destination = self._destination_for_format(bound.body_format)
            store = ListenerEventWriter(bound.name, destination, services, observer)
            counter = ListenerOutcomeCounter(bound.name, observer)
            self._event_writers.append(store)
            if bound.address.is_datagram:
                self._open_listeners.append(await _DatagramListener.create(bound, store, counter))
            else:
                handle = self._connection_handler(bound.body_format, store, services, counter)
                tls = self._tls_context if bound.address.scheme == "tls" else None
                self._open_listeners.append(_ConnectionListener(bound, self._connection_budget, handle, counter, tls))

    async def stop(self, seconds: float) -> None:
        """Stop reading, store what was read, and close all connections. Give up what is not stored within `seconds`."""
        for one in self._open_listeners:
            one.stop()
        if self._open_listeners:
            ending = asyncio.gather(*(one.wait_until_ended() for one in self._open_listeners))
            try:
                await asyncio.wait_for(ending, seconds)
            except TimeoutError:
                self._abandon_storing()
                await asyncio.gather(*(one.wait_until_ended() for one in self._open_listeners))
        self._connection_budget.close()
        self.close_sockets()

    def reload_certificates(self) -> None:
        """Read the TLS files again. New connections then use the new certificates."""
        if self._tls_context is not None:
            self._options.tls_files.load_into(self._tls_context)

    def close_sockets(self) -> None:
        """Close the sockets."""
        for bound in self._bound_listeners:
            bound.socket.close()

    def _abandon_storing(self) -> None:
        for store in self._event_writers:
            store.close()
        for one in self._open_listeners:
            one.abandon_unstored_events()

    def _bind_addresses(self, form: BodyFormat, setting: str, addresses: Sequence[ListenAddress]) -> None:
        for address in addresses:
            bound_socket = bind_socket(setting, address)
            self._bound_listeners.append(BoundListener(form, with_bound_port(bound_socket, address), bound_socket))

    def _destination_for_format(self, form: BodyFormat) -> EventDestination:
        return self._options.syslog_destination if form is BodyFormat.SYSLOG else self._options.fluent_destination

    def _connection_handler(
        self, form: BodyFormat, store: ListenerEventWriter, services: Services, counter: "ListenerOutcomeCounter"
    ) -> Callable[[SenderConnection], Awaitable[None]]:
        budget = services.intake.body_budget
        if form is BodyFormat.SYSLOG:
            return SyslogConnectionHandler(
                store, budget, self._options.max_message_bytes, counter.count_received
            ).handle
        return FluentConnectionHandler(store, budget, self._options.fluent_options, counter.count_received).handle


class ListenerOutcomeCounter:
    """Counts the outcomes of messages and connections at a listener, and logs losses and failures.

    Each kind of loss or failure is logged at most once in `_MIN_SECONDS_BETWEEN_WARNINGS`.
    """

    def __init__(self, name: str, observer: Observer) -> None:
        self._listener_name = name
        self._observer = observer
        self._last_logged_at_by_outcome: dict[str, float] = {}
        self._unlogged_counts_by_outcome: dict[str, int] = {}

    def count_received(self, messages: int) -> None:
        self._record_outcome_count("received", messages)

    def count_dropped(self, messages: int, reason: str) -> None:
        self._record_outcome_count("dropped", messages)
        self._log_rate_limited("dropped", messages, f"datagrams were dropped, the last ones for this reason: {reason}")

    def count_connection(self, outcome: str, problem: BaseException | None = None) -> None:
        self._record_outcome_count(f"connection {outcome}", 1)
        if problem is not None:
            self._log_rate_limited(
                outcome, 1, f"connections ended with an error, the last one with: {_describe_problem(problem)}"
            )

    def _record_outcome_count(self, outcome: str, count: int) -> None:
        self._observer.record(ListenerOutcomeCounted(listener=self._listener_name, outcome=outcome, count=count))

    def _log_rate_limited(self, kind: str, count: int, sentence: str) -> None:
        now = time.monotonic()
        unlogged = self._unlogged_counts_by_outcome.get(kind, 0) + count
        if (
            now - self._last_logged_at_by_outcome.get(kind, -_MIN_SECONDS_BETWEEN_WARNINGS)
            < _MIN_SECONDS_BETWEEN_WARNINGS
        ):
            self._unlogged_counts_by_outcome[kind] = unlogged
            return
        self._last_logged_at_by_outcome[kind], self._unlogged_counts_by_outcome[kind] = now, 0
        message = f"The listener {self._listener_name}: {unlogged} {sentence.rstrip('.')}."
        self._observer.record(OperatorMessage(message=message, level="warning"))


def _describe_problem(problem: BaseException) -> str:
    return problem.one_line_text() if isinstance(problem, Fault) else str(problem) or type(problem).__name__


class _ConnectionListener:
    """A listener that accepts connections."""

    def __init__(
        self,
        bound: BoundListener,
        budget: ConnectionBudget,
        handle: Callable[[SenderConnection], Awaitable[None]],
        counter: ListenerOutcomeCounter,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening_socket = bound.socket
        self._connection_budget = budget
        self._handle_connection = handle
        self._outcome_counter = counter
        self._tls_context = tls
        self._connections: set[SenderConnection] = set()
        self._accept_task = asyncio.get_running_loop().create_task(self._accept_connections())

    def stop(self) -> None:
        self._accept_task.cancel()
        for connection in self._connections:
            connection.stop()

    async def wait_until_ended(self) -> None:
        await asyncio.gather(*(connection.wait_until_ended() for connection in list(self._connections)))
        await asyncio.wait([self._accept_task])

    def abandon_unstored_events(self) -> None:
        for connection in self._connections:
            connection.abandon_unstored_events()

    async def _accept_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening_socket)
            except OSError as problem:
                # Either the process has no file descriptor left, or the sender has closed the connection already.
                self._outcome_counter.count_connection("refused", problem)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = SenderConnection(
                accepted, self._connection_budget, self._handle_connection, self._remove_connection, self._tls_context
            )
            if connection.start():
                self._connections.add(connection)
                self._outcome_counter.count_connection("accepted")
            else:
                self._outcome_counter.count_connection("refused")

    def _remove_connection(self, connection: SenderConnection, problem: BaseException | None) -> None:
        self._connections.discard(connection)
        if problem is None or isinstance(problem, ConnectionError):
            self._outcome_counter.count_connection("cut" if connection.is_aborted else "closed")
        else:
            self._outcome_counter.count_connection("failed", problem)


class _DatagramListener:
    """A listener that receives datagrams."""

    def __init__(
        self, transport: asyncio.BaseTransport, messages: SyslogDatagramReceiver, counter: ListenerOutcomeCounter
    ) -> None:
        self._transport = transport
        self._datagram_receiver = messages
        self._outcome_counter = counter
        self._storing_task = asyncio.get_running_loop().create_task(messages.run())

    @classmethod
    async def create(
        cls, bound: BoundListener, store: ListenerEventWriter, counter: ListenerOutcomeCounter
    ) -> "_DatagramListener":
        messages = SyslogDatagramReceiver(store, counter.count_received, counter.count_dropped)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: messages, sock=bound.socket)
        return cls(transport, messages, counter)

    def stop(self) -> None:
        self._transport.close()
        self._datagram_receiver.stop()

    async def wait_until_ended(self) -> None:
        await asyncio.wait([self._storing_task])

    def abandon_unstored_events(self) -> None:
        self._storing_task.cancel()
        if self._datagram_receiver.unstored_count:
            self._outcome_counter.count_dropped(self._datagram_receiver.unstored_count, "the service stopped")
