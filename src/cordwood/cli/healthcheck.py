"""Exit 0 when a service is ready to take requests, 1 when it is not; made for container health checks.

examples:
  cordwood healthcheck
  cordwood healthcheck --url http://127.0.0.1:4000 --timeout 2s
"""

import argparse

from cordwood.cli.sources import add_config, add_data_dir
from cordwood.cli.terminal import note, say
from cordwood.cli.wire import Service, Unreachable, local_or_named
from cordwood.settings.units import read_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_data_dir(parser)
    parser.add_argument("--url", help="address of the service (default: CORDWOOD_URL, else the local one)")
    parser.add_argument("--timeout", type=read_duration, default=5.0, help="how long to wait for it (default: 5s)")


def run(arguments: argparse.Namespace) -> int:
    service: Service = local_or_named(arguments)
    try:
        answer = service.get("/ready", timeout_seconds=arguments.timeout)
    except Unreachable as problem:
        note(problem.message)
        return 1
    if answer.status != 200:
        note(f"{service.url} is not ready (status {answer.status}).")
        return 1
    say(f"{service.url} is ready.")
    return 0
