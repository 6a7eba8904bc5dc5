"""Open the explorer of a service in the browser, and print its address.

Without --url, the address is that of the service on the data folder. The address does not contain a key: the explorer
asks for one, which `cordwood keys create` makes.

examples:
  cordwood open
  cordwood open --url https://logs.example.com
"""

import argparse
import webbrowser

from cordwood.cli.arguments import add_config_option, add_data_dir_option, load_settings_with_flags
from cordwood.cli.client import add_service_options, find_service_on_data_folder, remote_service_from_arguments
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import ServiceUnreachable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    add_data_dir_option(parser)
    add_config_option(parser)
    parser.add_argument("--print", action="store_true", dest="only_prints", help="only print the address")


def run(arguments: argparse.Namespace) -> int:
    service = remote_service_from_arguments(arguments) or find_service_on_data_folder(
        load_settings_with_flags(arguments).settings
    )
    if service is None:
        raise ServiceUnreachable(
            "No service runs on the data folder.", hint="Start one with `cordwood serve`, or name it: --url."
        )
    # Refuse other schemes, because the system may open such an address with any program instead of a browser.
    if not service.url.startswith(("http://", "https://")):
        raise ServiceUnreachable(f"{service.url!r} is not an address; write it like http://127.0.0.1:4000.")
    service.send("GET", "/livez").raise_for_error()
    print_output(f"{service.url}/")
    if not arguments.only_prints and not webbrowser.open(f"{service.url}/"):
        print_message("There is no browser here: open the address yourself.")
    return 0
