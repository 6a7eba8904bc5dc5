"""The service that a command talks to: a named one, the owner of the data folder, or one inside this process."""

import argparse
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cordwood.cli.arguments import add_config, add_data_dir, add_files, loaded_settings
from cordwood.cli.client import Counterpart, add_service, local, named
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
    """Yield the service; without a running one, open the data folder in this process.

    A missing folder is created only with `may_make` and --data-dir, so that a typo in its name is an error.
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
            f"No service runs on {folder.path}, and the data folder does not exist.",
            hint="Start one with `cordwood serve`, or name it: --url, or --data-dir.",
        )
    with _in_process(settings) as counterpart:
        yield counterpart


def _in_process(settings: Settings) -> AbstractContextManager[Counterpart]:
    """Open the data folder in this process. Imported on demand, because the service takes half a second to import."""
    opened: AbstractContextManager[Counterpart] = importlib.import_module("cordwood.cli.in_process").in_process(
        settings
    )
    return opened
