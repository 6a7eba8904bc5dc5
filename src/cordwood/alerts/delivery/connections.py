"""Connections to permitted network addresses only, which prevents server-side request forgery.

A host name is resolved once. Before a connection to one of its addresses is opened, the address is checked, and so is
any IPv4 address that is embedded in it. A connection is shut down at a deadline.
"""

import contextlib
import io
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

import msgspec

from cordwood.alerts.notification import DeliveryFailed
from cordwood.errors import BadSetting

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network


class AddressKind(StrEnum):
    """A kind of addresses that the operator may refuse or allow."""

    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    PRIVATE = "private"


def _parse_network_list(texts: str) -> tuple[IpNetwork, ...]:
    return tuple(map(ip_network, texts.split()))


# The networks of each kind of address. If an address is in networks of several kinds, the first kind applies. The
# unspecified addresses (0.0.0.0 and ::) are listed as loopback addresses, because a connection to them reaches this
# machine.
_NETWORKS_BY_ADDRESS_KIND: Final = (
    (AddressKind.LOOPBACK, _parse_network_list("127.0.0.0/8 0.0.0.0/32 ::1/128 ::/128")),
    (
        AddressKind.LINK_LOCAL,
        # The single addresses belong to services of clouds that tell a machine its own credentials (metadata services):
        # AWS over IPv6, Alibaba, Oracle, Azure, Google over IPv6. Other metadata services have an address in
        # 169.254.0.0/16.
        _parse_network_list(
            "169.254.0.0/16 fe80::/10 fd00:ec2::254/128 100.100.100.200/32 192.0.0.192/32 168.63.129.16/32 fd20:ce::254/128"
        ),
    ),
    (
        AddressKind.PRIVATE,
        _parse_network_list(
            "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 192.0.0.0/24 198.18.0.0/15 fc00::/7 fec0::/10 64:ff9b:1::/48"
        ),
    ),
)
# Networks to which nothing is ever sent: multicast, broadcast and reserved addresses.
_ALWAYS_REFUSED_NETWORKS: Final = _parse_network_list("0.0.0.0/8 224.0.0.0/4 240.0.0.0/4 ff00::/8 ::/8 100::/8")
_NAT64_NETWORKS: Final = _parse_network_list("64:ff9b::/96 64:ff9b:1::/48")
_IPV4_COMPATIBLE_NETWORK: Final = ip_network("::/96")


class AddressPolicy(msgspec.Struct, frozen=True):
    """The kinds of addresses to which no notification is sent."""

    refused_kinds: frozenset[AddressKind] = frozenset({AddressKind.LOOPBACK, AddressKind.LINK_LOCAL})

    def refusal_reason(self, text: str) -> str | None:
        """Return why an address is refused, as a phrase such as `a loopback address`; return None if it is allowed."""
        # Remove the zone of an IPv6 address, which names a network interface. It does not affect the kind of the
        # address.
        given = ip_address(text.partition("%")[0])
        embedded = tuple(_embedded_ipv4_addresses(given))
        kinds = [_address_kind(address) for address in (given, *embedded)]
        refused = next((kind for kind in kinds if kind in self.refused_kinds), None)
        if refused is not None:
            return f"a {refused} address"
        if any(
            _address_kind(address) is None and _is_in_any_network(address, _ALWAYS_REFUSED_NETWORKS)
            for address in embedded or (given,)
        ):
            return "a multicast or reserved address"
        return None


def read_address_policy(text: str) -> AddressPolicy:
    """Parse the setting `alerts.refuse_addresses`; raise BadSetting for an unknown kind of address."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    # `none` stands for an empty list, because an environment variable cannot express one.
    if names == ["none"]:
        return AddressPolicy(frozenset())
    unknown = [name for name in names if name not in set(AddressKind)]
    if unknown:
        raise BadSetting(
            f"alerts.refuse_addresses: {unknown[0]!r} is not a kind of address.",
            hint=f"There are: {', '.join(AddressKind)}; or none.",
        )
    return AddressPolicy(frozenset(map(AddressKind, names)))


def _address_kind(address: IpAddress) -> AddressKind | None:
    return next((kind for kind, networks in _NETWORKS_BY_ADDRESS_KIND if _is_in_any_network(address, networks)), None)


def _is_in_any_network(address: IpAddress, networks: tuple[IpNetwork, ...]) -> bool:
    return any(address in network for network in networks)


def _embedded_ipv4_addresses(address: IpAddress) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that are embedded in an IPv6 address.

    They are checked as well, because a gateway or the system might connect to them instead.
    """
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    # :: and ::1 do not embed an IPv4 address.
    if _is_in_any_network(address, _NAT64_NETWORKS) or (address in _IPV4_COMPATIBLE_NETWORK and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


# The maximum number of look-ups of host names at once. The system's resolver cannot be interrupted: a look-up that
# takes too long is abandoned, but still occupies its thread.
_MAX_CONCURRENT_NAME_LOOKUPS: Final = 16
_MAX_RESOLVED_ADDRESSES: Final = 20
_MAX_RESPONSE_BYTES: Final = 64 * 1024
_ResolvedAddress = tuple[socket.AddressFamily, tuple[Any, ...]]


class Deadline:
    """The time at which a delivery is abandoned."""

    def __init__(self, seconds: float) -> None:
        self.timeout_seconds = seconds
        self._end_monotonic_seconds = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end_monotonic_seconds

    def remaining_seconds(self) -> float:
        """Return the seconds until the deadline; raise TimeoutError if it has passed."""
        left = self._end_monotonic_seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Connector:
    """Opens connections to addresses that the policy allows. Proxies that environment variables name are not used."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._address_policy = policy
        self._lookup_slots = threading.BoundedSemaphore(_MAX_CONCURRENT_NAME_LOOKUPS)

    @contextmanager
    def open_connection(self, host: str, port: int, deadline: Deadline) -> Iterator[socket.socket]:
        """Yield a connection to the host; the connection is shut down at the deadline."""
        with self._connect_to_any(host, port, deadline) as connection, _shut_down_at_deadline(deadline, connection):
            yield connection

    def _connect_to_any(self, host: str, port: int, deadline: Deadline) -> socket.socket:
        resolved = self._allowed_addresses(host, self._resolve_host(host, port, deadline))
        problem: OSError = OSError("no address")
        for number, (family, address) in enumerate(resolved):
            try:
                # Each address gets an equal part of the remaining time.
                connection = _open_socket(family, address, deadline.remaining_seconds() / (len(resolved) - number))
                connection.settimeout(deadline.remaining_seconds())
            except OSError as one:
                problem = one
            else:
                return connection
        raise problem

    def _allowed_addresses(self, host: str, resolved: list[_ResolvedAddress]) -> list[_ResolvedAddress]:
        refusals = [(str(address[0]), self._address_policy.refusal_reason(str(address[0]))) for _, address in resolved]
        allowed = [one for one, (_, refusal) in zip(resolved, refusals, strict=True) if refusal is None]
        if not allowed:
            reasons = ", ".join(f"{address} is {refusal}" for address, refusal in refusals[:3])
            raise DeliveryFailed(f"{host} is refused by alerts.refuse_addresses: {reasons}.")
        return allowed

    def _resolve_host(self, host: str, port: int, deadline: Deadline) -> list[_ResolvedAddress]:
        if not self._lookup_slots.acquire(timeout=deadline.remaining_seconds()):
            raise DeliveryFailed(
                f"The name {host} was not looked up: {_MAX_CONCURRENT_NAME_LOOKUPS} look-ups are unanswered."
            )
        lookup = _NameLookup(host, port, self._lookup_slots)
        try:
            lookup.start()
        except RuntimeError:
            self._lookup_slots.release()
            raise DeliveryFailed("The system allows no further thread.") from None
        lookup.join(deadline.remaining_seconds())
        if lookup.is_alive():
            raise DeliveryFailed(f"The name {host} was not resolved within {deadline.timeout_seconds:g} s.")
        if lookup.failure_reason is not None:
            raise DeliveryFailed(f"The name {host} cannot be resolved: {lookup.failure_reason}.")
        return lookup.resolved_addresses[:_MAX_RESOLVED_ADDRESSES]


def _open_socket(family: socket.AddressFamily, address: tuple[Any, ...], seconds: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(address)
        # Send small packets at once. HTTP heads and bodies are written separately, and Nagle's algorithm would delay
        # the bodies.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connection.close()
        raise
    return connection


class _NameLookup(threading.Thread):
    """The look-up of a host name in its own thread, which can be abandoned if the look-up takes too long."""

    def __init__(self, host: str, port: int, places: threading.BoundedSemaphore) -> None:
        super().__init__(name="alerts-lookup", daemon=True)
        self._host = host
        self._port = port
        self._lookup_slots = places
        self.resolved_addresses: list[_ResolvedAddress] = []
        self.failure_reason: str | None = None

    def run(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self.resolved_addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        except OSError as problem:
            self.failure_reason = problem.strerror or "the resolver failed"
        except UnicodeError:
            self.failure_reason = "it is not a valid name"
        finally:
            self._lookup_slots.release()


@contextmanager
def _shut_down_at_deadline(deadline: Deadline, connection: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline. Reads and writes that are blocked, also within TLS, then end."""
    # Duplicate the file descriptor, because `start_tls` moves the original one to another socket object.
    with connection.dup() as twin:
        timer = threading.Timer(deadline.remaining_seconds(), _shut_down, [twin])
        timer.name = "alerts-deadline"
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:
            raise DeliveryFailed("The system allows no further thread.") from None
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def start_tls(connection: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Start TLS on a connection. The certificate of the server must be valid for the name `host`."""
    return context.wrap_socket(connection, server_hostname=host.rstrip("."))


class BoundedSocketFile(io.RawIOBase):
    """The data that is received on a connection. Reading more than 64 KiB in all raises an error."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket_file = connection.makefile("rb", buffering=0)
        self._remaining_allowed_bytes = _MAX_RESPONSE_BYTES
        self.is_at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._socket_file.readinto(buffer)
        self.is_at_end = count == 0
        self._remaining_allowed_bytes -= count or 0
        if self._remaining_allowed_bytes < 0:
            raise OSError("the answer is too long")
        return count

    def close(self) -> None:
        self._socket_file.close()
        super().close()
