"""Make the service on a data folder read its endpoint and streams files again.

If a file has an error, the service continues with its previous files, and this command prints the error.

examples:
  cordwood reload
  cordwood reload --data-dir /var/lib/cordwood
"""

import argparse
from pathlib import Path

from cordwood.cli.arguments import add_config_option, add_data_dir_option, load_settings_with_flags
from cordwood.cli.terminal import print_message, print_output
from cordwood.folder import DataFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    add_data_dir_option(parser)


def run(arguments: argparse.Namespace) -> int:
    folder = DataFolder(Path(load_settings_with_flags(arguments).settings.serve.data_dir))
    owner = folder.find_owner()
    if owner is None or not owner.pid:
        print_message(f"cordwood reload: no service owns the data folder {folder.path}.")
        return 1
    outcome = folder.ask_to_reload(owner)
    if outcome is None:
        print_message(f"cordwood reload: process {owner.pid} was signalled but has not reloaded yet; see its log.")
        return 1
    (print_output if outcome.ok else print_message)(outcome.message)
    return 0 if outcome.ok else 1
