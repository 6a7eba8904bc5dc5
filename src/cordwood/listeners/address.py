"""The addresses of listeners in the settings, such as `tcp://127.0.0.1:6514`."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from cordwood.errors import BadSetting
from cordwood.settings.settings import ListenSettings

SYSLOG_SCHEMES = ("tcp", "tls", "udp")
FLUENT_SCHEMES = GRPC_SCHEMES = ("tcp", "tls")
_LISTEN_BACKLOG = 512
# The size of the buffer for unread datagrams that the service requests from the kernel. The kernel may grant less.
_DATAGRAM_BUFFER_BYTES = 4 * 2**20


class ListenAddress(msgspec.Struct, frozen=True):
    """An address in the settings on which a listener receives data."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_datagram(self) -> bool:
        return self.scheme == "udp"

    @property
    def is_private(self) -> bool:
        """Whether only this machine or a private network can reach the address."""
        try:
            address = ip_address(self.host)
        except ValueError:
            return self.host == "localhost"
        return address.is_private and not address.is_unspecified


def read_syslog_and_fluent_addresses(
    listen: ListenSettings,
) -> tuple[tuple[ListenAddress, ...], tuple[ListenAddress, ...]]:
    """Return the addresses for syslog and for Fluent Forward."""
    return (
        read_addresses("listen.syslog", listen.syslog, SYSLOG_SCHEMES),
        read_addresses("listen.fluent", listen.fluent, FLUENT_SCHEMES),
    )


def read_otlp_grpc_addresses(listen: ListenSettings) -> tuple[ListenAddress, ...]:
    """Return the addresses for OTLP over gRPC."""
    return read_addresses("listen.otlp_grpc", listen.otlp_grpc, GRPC_SCHEMES)


def read_addresses(setting: str, text: str, schemes: tuple[str, ...]) -> tuple[ListenAddress, ...]:
    """Parse addresses separated by commas; raise BadSetting with the name of the setting."""
    return tuple(_parse_address(setting, part.strip(), schemes) for part in text.split(",") if part.strip())


def _parse_address(setting: str, text: str, schemes: tuple[str, ...]) -> ListenAddress:
    hint = f"Write it like {schemes[0]}://127.0.0.1:6514; the schemes are {', '.join(schemes)}."
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as problem:
        raise BadSetting(f"{setting}: {text!r} is not an address: {problem}.", hint=hint) from problem
    if parts.scheme not in schemes or not host or port is None or parts.path or parts.query or parts.username:
        raise BadSetting(f"{setting}: {text!r} is not an address.", hint=hint)
    return ListenAddress(parts.scheme, host, port)


def bind_socket(setting: str, address: ListenAddress) -> socket.socket:
    """Return a socket that is bound to an address; raise BadSetting if it cannot be bound.

    The socket already listens, unless it is for datagrams.
    """
    kind = socket.SOCK_DGRAM if address.is_datagram else socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(address.host, address.port, type=kind, flags=socket.AI_PASSIVE)
        return _open_bound_socket(found[0][0], kind, found[0][4])
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise BadSetting(f"{setting}: the service cannot listen on {address}: {reason}.") from problem


def _open_bound_socket(family: int, kind: int, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, kind)
    try:
        if family == socket.AF_INET6:
            # Let a socket that is bound to "::" accept IPv4 senders, too.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if kind == socket.SOCK_DGRAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _DATAGRAM_BUFFER_BYTES)
        else:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if kind == socket.SOCK_STREAM:
            bound.listen(_LISTEN_BACKLOG)
        bound.settimeout(0)
    except OSError:
        bound.close()
        raise
    return bound


def with_bound_port(bound: socket.socket, address: ListenAddress) -> ListenAddress:
    """Return the address with the port of the socket; if the setting has port 0, the system chose this port."""
    return msgspec.structs.replace(address, port=bound.getsockname()[1])
