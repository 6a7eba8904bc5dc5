"""Exit with 0 if a service is ready, otherwise with 1, for health checks of containers.

examples:
  cordwood healthcheck
  cordwood healthcheck --url http://127.0.0.1:4000 --timeout 2s
"""

import argparse

import msgspec

from cordwood.cli.arguments import add_config_option, add_data_dir_option, load_settings_with_flags
from cordwood.cli.client import RemoteService, find_service_on_data_folder, remote_service_from_arguments
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import ServiceUnreachable
from cordwood.settings.quantities import parse_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    add_data_dir_option(parser)
    parser.add_argument("--url", help="address of the service (default: CORDWOOD_URL, else the local one)")
    parser.add_argument("--timeout", type=parse_duration, default=5.0, help="how long to wait for it (default: 5s)")


def run(arguments: argparse.Namespace) -> int:
    service = _service_to_check(arguments)
    try:
        answer = service.send("GET", "/ready")
    except ServiceUnreachable as problem:
        print_message(problem.message)
        return 1
    if answer.status != 200:
        print_message(f"{service.url} is not ready (status {answer.status}).")
        return 1
    print_output(f"{service.url} is ready.")
    return 0


def _service_to_check(arguments: argparse.Namespace) -> RemoteService:
    found = remote_service_from_arguments(arguments)
    if found is None:
        settings = load_settings_with_flags(arguments).settings
        found = find_service_on_data_folder(settings) or RemoteService(
            f"http://{_reachable_url_host(settings.web.host)}:{settings.web.port}", None
        )
    return msgspec.structs.replace(found, timeout_seconds=arguments.timeout)


def _reachable_url_host(host: str) -> str:
    """Return the host part of a URL at which this machine can reach a service that listens on `host`.

    If the service listens on all addresses, this is 127.0.0.1. An IPv6 address is put in brackets.
    """
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - a name, not a bind
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
