"""Addresses of listeners: parsing, binding, findings of `cordwood doctor`, and lazy loading of the listeners."""

import socket
import subprocess
import sys

import pytest

from cordwood.cli.doctor import CheckVerdict, check_listeners, check_unreachable_listeners
from cordwood.listeners.address import ListenAddress, bind_socket, read_addresses, with_bound_port
from cordwood.settings.settings import ListenSettings


def test_addresses_are_parsed_and_printed_unchanged() -> None:
    text = "tcp://127.0.0.1:6514, udp://[::]:514,tls://logs.example:6514,"
    read = read_addresses("listen.syslog", text, ("tcp", "tls", "udp"))
    assert [str(address) for address in read] == ["tcp://127.0.0.1:6514", "udp://[::]:514", "tls://logs.example:6514"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::", "localhost"])
@pytest.mark.parametrize("scheme", ["tcp", "udp"])
def test_port_0_binds_to_a_free_port(scheme: str, host: str) -> None:
    address = ListenAddress(scheme, host, 0)
    with bind_socket("listen.syslog", address) as bound:
        bound_address = with_bound_port(bound, address)
        assert bound_address.port > 0
        kind = socket.SOCK_DGRAM if address.is_datagram else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as sender:
            sender.connect(("127.0.0.1", bound_address.port))


@pytest.mark.parametrize(
    ("listen", "verdicts"),
    [
        (ListenSettings(), []),
        (ListenSettings(syslog="tcp://127.0.0.1:1,udp://10.1.2.3:1,tcp://localhost:1"), [CheckVerdict.GOOD] * 3),
        (
            ListenSettings(syslog="tcp://0.0.0.0:1,udp://[::]:1,tcp://198.51.100.1:1"),
            [CheckVerdict.WARNING] * 2 + [CheckVerdict.GOOD],
        ),
        (
            ListenSettings(syslog="tls://0.0.0.0:1,tcp://0.0.0.0:2", tls_client_ca="x"),
            [CheckVerdict.GOOD, CheckVerdict.WARNING],
        ),
        (ListenSettings(syslog="tls://0.0.0.0:1", tls_certificate="x"), [CheckVerdict.WARNING]),
        (ListenSettings(fluent="tcp://0.0.0.0:1", fluent_shared_key="x"), [CheckVerdict.GOOD]),
        (ListenSettings(fluent="tcp://8.8.8.8:1"), [CheckVerdict.WARNING]),
        (ListenSettings(otlp_grpc="tcp://0.0.0.0:1"), [CheckVerdict.GOOD]),
    ],
)
def test_doctor_lists_listeners_and_warns_of_unprotected_ones(
    listen: ListenSettings, verdicts: list[CheckVerdict]
) -> None:
    assert [finding.verdict for finding in check_listeners(listen)] == verdicts


def test_doctor_reports_an_address_on_which_nothing_listens() -> None:
    with bind_socket("listen.syslog", ListenAddress("tcp", "127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        assert (
            list(
                check_unreachable_listeners(
                    ListenSettings(syslog=f"tcp://127.0.0.1:{port},udp://127.0.0.1:1,tcp://127.0.0.1:0")
                )
            )
            == []
        )
    for listen in (
        ListenSettings(fluent=f"tcp://127.0.0.1:{port}"),
        ListenSettings(otlp_grpc=f"tcp://127.0.0.1:{port}"),
    ):
        (finding,) = check_unreachable_listeners(listen)
        assert (finding.verdict, finding.observation) == (
            CheckVerdict.PROBLEM,
            f"nothing listens on tcp://127.0.0.1:{port}",
        )


def test_a_service_without_listeners_does_not_load_them() -> None:
    code = "import sys, cordwood.cli.serve; print([name for name in sys.modules if 'listeners' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
