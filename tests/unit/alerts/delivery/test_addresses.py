"""The address policy: which kinds of addresses are refused, including addresses that are embedded in others."""

import pytest

from cordwood.alerts.delivery.connections import AddressPolicy, read_address_policy
from cordwood.errors import BadSetting

DEFAULT_POLICY = read_address_policy("loopback,link-local")
STRICT_POLICY = read_address_policy("loopback, link-local, private")
EMPTY_POLICY = read_address_policy("")

LOOPBACK_ADDRESSES = [
    "127.0.0.1",
    "127.255.255.254",
    "::1",
    "0.0.0.0",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:0.0.0.0",
    "::127.0.0.1",
    "2002:7f00:1::",
    "2001:0:7f00:1::f7f7:f7f7",
    # A Teredo address, in which the bits of the client's IPv4 address are inverted.
    "2001:0:808:808::80ff:fffe",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::127.0.0.1",
]
LINK_LOCAL_ADDRESSES = [
    "169.254.169.254",
    "fe80::1",
    "fe80::1%lo",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "::ffff:169.254.169.254",
    "2002:a9fe:a9fe::",
    "64:ff9b::169.254.169.254",
]
PRIVATE_ADDRESSES = [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "fc00::1",
    "fd12::1",
    "fec0::1",
    "::ffff:10.0.0.1",
    "2002:c0a8:101::",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
]
ALWAYS_REFUSED_ADDRESSES = [
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "240.0.0.1",
    "0.1.2.3",
    "ff02::1",
    "100::1",
    "::ffff:224.0.0.1",
    "::2:0:0",
    "64:ff9b::255.255.255.255",
]
PUBLIC_ADDRESSES = ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", LOOPBACK_ADDRESSES)
def test_loopback_is_refused_unless_allowed(address: str) -> None:
    assert DEFAULT_POLICY.refusal_reason(address) == "a loopback address"
    assert read_address_policy("link-local,private").refusal_reason(address) in {None, "a private address"}
    assert EMPTY_POLICY.refusal_reason(address) is None


@pytest.mark.parametrize("address", LINK_LOCAL_ADDRESSES)
def test_link_local_and_cloud_metadata_addresses_are_refused_unless_allowed(address: str) -> None:
    assert DEFAULT_POLICY.refusal_reason(address) == "a link-local address"
    assert EMPTY_POLICY.refusal_reason(address) is None


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_private_addresses_are_refused_on_demand(address: str) -> None:
    assert DEFAULT_POLICY.refusal_reason(address) is None
    assert STRICT_POLICY.refusal_reason(address) == "a private address"


@pytest.mark.parametrize("address", ALWAYS_REFUSED_ADDRESSES)
@pytest.mark.parametrize("policy", [DEFAULT_POLICY, STRICT_POLICY, EMPTY_POLICY], ids=["usual", "strict", "none"])
def test_multicast_and_reserved_addresses_are_always_refused(address: str, policy: AddressPolicy) -> None:
    assert policy.refusal_reason(address) == "a multicast or reserved address"


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_are_allowed(address: str) -> None:
    assert STRICT_POLICY.refusal_reason(address) is None


def test_none_is_the_same_as_an_empty_setting() -> None:
    assert read_address_policy(" none ") == EMPTY_POLICY


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadSetting, match="'internet' is not a kind of address"):
        read_address_policy("loopback, internet")
