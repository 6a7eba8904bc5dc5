"""Have the service that owns a data folder read its endpoint and stream files again.

A broken change is refused whole: the service goes on serving what it had, and this command says what is wrong.

examples:
  cordwood reload
  cordwood reload --data-dir /var/lib/cordwood
"""

import argparse
from pathlib import Path

from cordwood.cli.sources import add_config, add_data_dir, loaded_settings
from cordwood.cli.terminal import note, say
from cordwood.folder import DataFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_data_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    folder = DataFolder(Path(loaded_settings(arguments).settings.serve.data_dir))
    owner = folder.owner()
    if owner is None or not owner.pid:
        note(f"cordwood reload: no service owns the data folder {folder.path}.")
        return 1
    outcome = folder.ask_to_reload(owner)
    if outcome is None:
        note(f"cordwood reload: process {owner.pid} was asked and has not answered yet; its log will tell.")
        return 1
    (say if outcome.ok else note)(outcome.message)
    return 0 if outcome.ok else 1
