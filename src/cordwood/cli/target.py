"""Which service a command means: a named one, the owner of the data folder, or the folder itself, opened here."""

import argparse
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cordwood.cli.sources import add_config, add_data_dir, add_files, loaded_settings
from cordwood.cli.wire import Counterpart, add_service, local, named
from cordwood.errors import Unreachable
from cordwood.folder import DataFolder
from cordwood.settings.settings import Settings


def add_target(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_data_dir(parser)
    add_files(parser)
    add_config(parser)


@contextmanager
def target(arguments: argparse.Namespace, *, may_make: bool = False) -> Iterator[Counterpart]:
    """The service that is meant; without one, the data folder is opened in its place.

    A folder that is not there is made only where `may_make` and it was named: a slip in its name is no empty folder.
    """
    remote = named(arguments)
    if remote is not None:
        yield remote
        return
    settings = loaded_settings(arguments).settings
    owner = local(settings, arguments.key)
    if owner is not None:
        yield owner
        return
    folder = DataFolder(Path(settings.serve.data_dir))
    is_there = folder.is_used() if arguments.data_dir is None else may_make or folder.path.is_dir()
    if not is_there:
        raise Unreachable(
            f"No service runs on {folder.path}, and there is no such data folder.",
            hint="Start one with `cordwood serve`, or say where it is: --url, or --data-dir.",
        )
    with _here(settings) as counterpart:
        yield counterpart


def _here(settings: Settings) -> AbstractContextManager[Counterpart]:
    """Loaded when it is needed: who asks a running service need not wait half a second for a service of his own."""
    opened: AbstractContextManager[Counterpart] = importlib.import_module("cordwood.cli.here").here(settings)
    return opened
