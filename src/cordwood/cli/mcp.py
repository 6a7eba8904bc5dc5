"""Offer a service's endpoints and streams as tools to an AI agent: the Model Context Protocol on standard input and output.

An agent's program starts this command. It talks to a running service, with the key that it is given; the agent sees what this
key may see. Needs the extra: pip install 'cordwood[mcp]'. A service offers the same at /mcp, over HTTP.

examples:
  cordwood mcp
  cordwood mcp --url https://logs.example.com --key "$KEY"
  cordwood mcp --redact
"""

import argparse
import importlib
import signal
from collections.abc import Callable
from types import ModuleType

from cordwood.cli.arguments import add_config, add_data_dir, loaded_settings
from cordwood.cli.client import Remote, add_service, local, named
from cordwood.cli.remote_api import RemoteApi
from cordwood.errors import BadSetting, Unreachable
from cordwood.settings.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_data_dir(parser)
    add_config(parser)
    parser.add_argument("--redact", action="store_true", help="redact personal data in every answer")


def run(arguments: argparse.Namespace) -> int:
    headers = {"LF-ENDPOINT-REDACT-PII": "true"} if arguments.redact else {}
    api = RemoteApi(_finder(arguments), headers)
    # Ctrl-C ends the process, because the thread that reads standard input cannot be interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _library().serve_standard_streams(api)
    return 0


def _finder(arguments: argparse.Namespace) -> Callable[[], Remote]:
    """Return the function that finds the service: the named one, or whichever then owns the data folder."""
    remote = named(arguments)
    if remote is not None:
        return lambda: remote
    settings = loaded_settings(arguments).settings
    return lambda: _owner(settings, arguments.key)


def _owner(settings: Settings, key: str | None) -> Remote:
    found = local(settings, key)
    if found is None:
        raise Unreachable(
            "No service runs on the data folder.",
            hint="Start one with `cordwood serve`, or name it: --url, or --data-dir.",
        )
    return found


def _library() -> ModuleType:
    try:
        return importlib.import_module("cordwood.agents.mcp_server")
    except ModuleNotFoundError as missing:
        raise BadSetting(
            f"cordwood mcp needs {missing.name}, which is not installed.",
            hint="Install it: pip install 'cordwood[mcp]'.",
        ) from missing
