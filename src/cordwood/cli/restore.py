"""Create a data folder from a backup, with its events, shapes, quarantine, keys and redaction key.

The data folder must be empty or must not exist. Before any file is moved into the folder, every file is checked against
the manifest, and the events are opened. A backup that is incomplete, changed, or written by a newer version is refused,
and the data folder stays empty.

examples:
  cordwood restore /backups/today --data-dir /var/lib/cordwood
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from cordwood.app.restore import restore_backup
from cordwood.cli.arguments import (
    add_config_option,
    add_data_dir_option,
    add_definition_files_options,
    load_settings_with_flags,
)
from cordwood.cli.terminal import ByteProgress, print_output

_MAX_LISTED_STREAMS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the backup")
    add_data_dir_option(parser)
    add_definition_files_options(parser)
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings_with_flags(arguments).settings
    progress = ByteProgress()
    restored = restore_backup(arguments.folder, settings, progress.add)
    progress.end_progress_line()
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(restored.backup_created_at))
    counts = restored.event_counts
    where = f"{sum(counts.values()):,} events in {len(counts)} streams, as of {at}"
    print_output(f"{settings.serve.data_dir} holds {where}: {progress.progress_line()}")
    if restored.undefined_event_counts:
        print_output(_describe_undefined_streams(restored.undefined_event_counts))
    return 0


def _describe_undefined_streams(counts: Mapping[str, int]) -> str:
    names = ", ".join(list(counts)[:_MAX_LISTED_STREAMS])
    more = f" and {len(counts) - _MAX_LISTED_STREAMS} more" if len(counts) > _MAX_LISTED_STREAMS else ""
    return (
        f"It also holds {sum(counts.values()):,} events of streams that are not defined: {names}{more}."
        " To query these events, start the service with the streams file that defines the streams (--streams)."
    )
