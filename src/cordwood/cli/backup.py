"""Back up a data folder as it is at one point in time: events, shapes, the quarantine, keys and the redaction key.

If a service runs on the data folder, or --url names one, the service makes the backup and continues to run; otherwise
the data folder is read directly. manifest.json, with the length and digest of every other file, is written last, so an
incomplete backup has none and is refused by `cordwood restore`. Endpoints and streams that were created over HTTP are
included; your own files of settings, endpoints and streams are not. Needs a private key.

examples:
  cordwood backup /backups/today
  cordwood backup /backups/today --data-dir /var/lib/cordwood
  cordwood backup /backups/today --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
from pathlib import Path

from cordwood.cli.client import add_service_and_folder_options, open_service_client
from cordwood.cli.terminal import ByteProgress, print_output
from cordwood.errors import BadBackup, RefusedByService
from cordwood.serve.backup_archive import MANIFEST_FILE_NAME, ArchivedFile, read_manifest, unpack_archive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder to write; it must be new or empty")
    add_service_and_folder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    progress = ByteProgress()
    with open_service_client(arguments) as service:
        _make_empty_folder(folder)
        receiver = _ArchiveUnpacker(folder, progress)
        service.download("/api/backup", receiver.add_chunk).raise_for_error()
        receiver.verify_manifest()
    progress.end_progress_line()
    print_output(f"{folder} is a complete backup: {progress.progress_line()}")
    return 0


def _make_empty_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            raise RefusedByService(
                f"{folder} is not empty.", hint="Choose another folder: a backup never overwrites files."
            )
    except OSError as problem:
        raise RefusedByService(f"{folder} cannot be written: {problem.strerror}.") from problem


class _ArchiveUnpacker:
    """Unpacks the archive of a backup while the archive is being received."""

    def __init__(self, folder: Path, progress: ByteProgress) -> None:
        self._folder = folder
        self._progress = progress
        self._written_files: list[ArchivedFile] = []
        self._unpacking_generator = unpack_archive(folder, self._written_files.append)
        next(self._unpacking_generator)

    def add_chunk(self, chunk: bytes) -> None:
        try:
            self._unpacking_generator.send(chunk)
        except OSError as problem:
            raise RefusedByService(f"{self._folder} cannot be written: {problem.strerror}.") from problem
        self._progress.add(len(chunk))

    def verify_manifest(self) -> None:
        """Compare the unpacked files with the manifest; raise BadBackup if a file differs.

        In this case, the manifest is deleted, so that nobody can restore the damaged backup.
        """
        *files, last = self._written_files
        if last.name != MANIFEST_FILE_NAME or read_manifest(self._folder).files != tuple(files):
            (self._folder / MANIFEST_FILE_NAME).unlink(missing_ok=True)
            raise BadBackup("The backup was damaged on its way.", hint="Make another, into another folder.")
