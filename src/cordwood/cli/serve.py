"""Serve endpoints and receive events over HTTP.

The service consists of a serving process, an engine process that owns the events, and a small process that forks the
engine process. If the engine process ends, it is replaced. Ctrl-C or SIGTERM stops the service after its running
requests. SIGHUP, or `cordwood reload`, makes the service read endpoint and streams files again.

examples:
  cordwood serve --demo                       a demo: generated events, a link that signs in, three calls to paste
  cordwood serve                              on 127.0.0.1:4000, data in ./cordwood-data
  cordwood serve --host 0.0.0.0 --memory 1GB
  cordwood serve --endpoints ./queries        with endpoints of your own
"""

import argparse
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import cordwood
from cordwood.app.compose import Observability
from cordwood.app.demo import (
    example_commands,
    incident_hint,
    post_history_events,
    post_live_events,
    sign_in_link,
)
from cordwood.app.service import ServiceHooks, StartupSummary, serve
from cordwood.cli import commands
from cordwood.cli.arguments import (
    add_config_option,
    add_data_dir_option,
    add_definition_files_options,
    load_settings_with_flags,
)
from cordwood.cli.terminal import print_line_unless_output_closed, print_message
from cordwood.errors import BadSetting
from cordwood.settings.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 lets the system choose (default: 4000)")
    add_data_dir_option(parser)
    add_definition_files_options(parser)
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory limit of the service (default: a quarter of the machine's memory)"
    )
    parser.add_argument("--engine", help="storage and query engine (default: duckdb)")
    parser.add_argument("--demo", action="store_true", help="use a temporary folder with generated events")
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings_with_flags(arguments).settings
    if not arguments.demo:
        _serve(settings, ServiceHooks(_print_startup_summary, Observability.from_settings(settings)))
        return 0
    if arguments.data_dir is not None:
        raise BadSetting("--demo uses a temporary folder of its own.", hint="Leave out --data-dir.")
    folder = Path(tempfile.mkdtemp(prefix="cordwood-demo-"))
    try:
        _serve(*_demo_settings_and_hooks(settings, folder))
    finally:
        _delete_folder(folder)
    return 0


def _serve(settings: Settings, hooks: ServiceHooks) -> None:
    serve(settings, hooks, commands.PROCESS_START_MONOTONIC_SECONDS)
    print_message("Stopped.")


def _demo_settings_and_hooks(settings: Settings, folder: Path) -> tuple[Settings, ServiceHooks]:
    # The demo always uses its own folder and keys, even if the environment sets others. So it never touches real data.
    own = msgspec.structs.replace(
        settings,
        serve=msgspec.structs.replace(settings.serve, data_dir=str(folder)),
        keys=type(settings.keys)(),
        web=msgspec.structs.replace(settings.web, log_level="warning"),
    )
    watch, now = Observability.from_settings(own), datetime.now(UTC)
    hooks = ServiceHooks(
        on_ready=lambda ready: _print_demo_instructions(ready, now),
        observability=watch,
        before_ready=lambda components: post_history_events(components, now),
        background_work=lambda components: post_live_events(components, watch.observer),
        before_forced_exit=lambda: _delete_folder(folder),
        offers_sign_in=True,
    )
    return own, hooks


def _delete_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _print_startup_summary(ready: StartupSummary) -> None:
    made = ready.created_keys
    if made is not None:
        print_line_unless_output_closed(
            "Two keys were created for this data folder. They are shown only once and stored as digests."
        )
        print_line_unless_output_closed(f"  private  {made.private_key_secret}  queries, ingest, management")
        print_line_unless_output_closed(f"  public   {made.public_key_secret}  ingest only")
    elif not ready.components.has_private_key():
        print_message("No private key is in force. Create one: cordwood keys create --scope private")
    for name in ready.listener_names:
        print_line_unless_output_closed(f"Listening for {name}")
    print_line_unless_output_closed(_startup_summary_line(ready))


def _print_demo_instructions(ready: StartupSummary, started_at: datetime) -> None:
    made = ready.created_keys
    key = made.private_key_secret if made else ready.owner.key
    url = ready.owner.url
    print_line_unless_output_closed(_startup_summary_line(ready))
    print_line_unless_output_closed(
        f"\nOpen this link: it signs you in, and is valid until the demo ends.\n\n  {sign_in_link(url, key)}\n"
    )
    print_line_unless_output_closed(incident_hint(started_at))
    print_line_unless_output_closed(f"\nThe key of this demo: {key}\n\nOr paste any of these:\n")
    for call in example_commands(url, key):
        print_line_unless_output_closed(f"{call}\n")


def _startup_summary_line(ready: StartupSummary) -> str:
    catalog = ready.components.catalog
    endpoints = ", ".join(endpoint.name for endpoint in catalog.endpoints())
    streams = ", ".join(stream.name for stream in catalog.streams())
    return (
        f"cordwood {cordwood.__version__} listens on {ready.owner.url}, data in {ready.data_folder_path},"
        f" endpoints: {endpoints or 'none'}; streams: {streams} ({ready.startup_seconds:.2f} s to ready)"
    )
