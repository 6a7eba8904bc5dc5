"""Network addresses to which nothing is sent. An address is checked together with every address that it embeds."""

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec

from cordwood.errors import BadSetting

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressKind(StrEnum):
    """The kinds of addresses that the operator may refuse or allow."""

    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    PRIVATE = "private"


def _networks(texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts.split()))


# An address is of the first kind that contains it. A connection to the unspecified address reaches this machine.
_KINDS: Final = (
    (AddressKind.LOOPBACK, _networks("127.0.0.0/8 0.0.0.0/32 ::1/128 ::/128")),
    (
        AddressKind.LINK_LOCAL,
        # The metadata services of clouds: AWS over IPv6, Alibaba, Oracle, Azure, Google over IPv6. The usual address is
        # in 169.254.0.0/16.
        _networks(
            "169.254.0.0/16 fe80::/10 fd00:ec2::254/128 100.100.100.200/32 192.0.0.192/32 168.63.129.16/32 fd20:ce::254/128"
        ),
    ),
    (
        AddressKind.PRIVATE,
        _networks(
            "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 192.0.0.0/24 198.18.0.0/15 fc00::/7 fec0::/10 64:ff9b:1::/48"
        ),
    ),
)
# Addresses that never accept a message: multicast, broadcast, and reserved ones.
_ALWAYS_REFUSED: Final = _networks("0.0.0.0/8 224.0.0.0/4 240.0.0.0/4 ff00::/8 ::/8 100::/8")
_NAT64: Final = _networks("64:ff9b::/96 64:ff9b:1::/48")
_COMPATIBLE: Final = ip_network("::/96")


class AddressPolicy(msgspec.Struct, frozen=True):
    """The kinds of addresses to which nothing is sent."""

    refused: frozenset[AddressKind] = frozenset({AddressKind.LOOPBACK, AddressKind.LINK_LOCAL})

    def refusal(self, text: str) -> str | None:
        """Return why an address is refused, as a phrase, or None if it is allowed."""
        # The zone (network interface) of the address does not matter.
        given = ip_address(text.partition("%")[0])
        embedded = tuple(_embedded_addresses(given))
        kinds = [_kind(address) for address in (given, *embedded)]
        refused = next((kind for kind in kinds if kind in self.refused), None)
        if refused is not None:
            return f"a {refused} address"
        if any(_kind(address) is None and _is_in_any(address, _ALWAYS_REFUSED) for address in embedded or (given,)):
            return "a multicast or reserved address"
        return None


def read_policy(text: str) -> AddressPolicy:
    """Parse the setting `alerts.refuse_addresses`; raise BadSetting for an unknown kind."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    # `none` stands for an empty list, which an environment variable cannot be.
    if names == ["none"]:
        return AddressPolicy(frozenset())
    unknown = [name for name in names if name not in set(AddressKind)]
    if unknown:
        raise BadSetting(
            f"alerts.refuse_addresses: {unknown[0]!r} is no kind of address.",
            hint=f"There are: {', '.join(AddressKind)}; or none.",
        )
    return AddressPolicy(frozenset(map(AddressKind, names)))


def _kind(address: Address) -> AddressKind | None:
    return next((kind for kind, networks in _KINDS if _is_in_any(address, networks)), None)


def _is_in_any(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _embedded_addresses(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which a gateway or the system itself would connect instead."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    # :: and ::1 do not embed an IPv4 address.
    if _is_in_any(address, _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
