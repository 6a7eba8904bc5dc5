"""Restore a data folder from a backup: verify every file, then move all of them into place."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from cordwood.app.checks import catalog_sources_of, read_and_check_definitions
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadBackup, DataFolderUnusable
from cordwood.folder import DataFolder, sync_folder
from cordwood.ingest.quarantine import QUARANTINE_STREAM
from cordwood.model.definitions import Stream
from cordwood.serve.backup_archive import ArchivedFile, create_private_file, read_manifest, resolve_path_in_folder
from cordwood.settings.settings import Settings

_COPY_CHUNK_BYTES = 1024 * 1024

OnBytesCopied = Callable[[int], None]


class RestoreResult(msgspec.Struct, frozen=True):
    """The result of a restore: the number of events by stream, and the time of the backup.

    `undefined_event_counts` has the events of streams that neither the backup nor the settings define. They are stored
    too, but cannot be queried until their streams are defined.
    """

    event_counts: Mapping[str, int]
    undefined_event_counts: Mapping[str, int]
    backup_created_at: float


def restore_backup(backup: Path, settings: Settings, progress: OnBytesCopied) -> RestoreResult:
    """Restore a backup; if a file differs from the manifest, raise BadBackup and leave the data folder unchanged."""
    manifest = read_manifest(backup)
    sources = catalog_sources_of(settings)
    read_and_check_definitions(sources)
    folder = DataFolder(Path(settings.serve.data_dir))
    staging_folder = folder.restore_folder
    with folder.take_ownership():
        _require_unused_folder(folder)
        # Remove files that an interrupted restore may have left.
        shutil.rmtree(staging_folder, ignore_errors=True)
        try:
            for file in manifest.files:
                _copy_archived_file(backup, staging_folder, file, progress)
            # Read the definitions again, now with those in the backup, because these may define more streams.
            streams = read_and_check_definitions(
                msgspec.structs.replace(sources, managed_folder=staging_folder)
            ).streams
            defined, undefined = _count_events(staging_folder, [*streams, QUARANTINE_STREAM])
            _move_restored_files(staging_folder, folder.path)
        except OSError as problem:
            raise DataFolderUnusable(f"{folder.path} cannot be restored: {problem.strerror}.") from problem
        finally:
            shutil.rmtree(staging_folder, ignore_errors=True)
    return RestoreResult(defined, undefined, manifest.at)


def _count_events(folder: Path, streams: Sequence[Stream]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Open the folder with the engine, and return the number of events of each stream that has events.

    The first mapping has those of `streams`, and the second all others.
    """
    engine = DuckDBEngine(folder, DuckDBTarget())
    try:
        engine.create_stream_tables(streams)
        counts = {name: facts.events for name, facts in engine.stream_stats().items() if facts.events}
        return counts, engine.count_events_of_unopened_streams()
    finally:
        engine.close()


def _require_unused_folder(folder: DataFolder) -> None:
    existing = [name for name in folder.file_names() if name != folder.restore_folder.name]
    if existing:
        raise DataFolderUnusable(
            f"The data folder {folder.path} is not empty: it holds {', '.join(existing[:3])}.",
            hint="Restore into a new one: --data-dir.",
        )


def _copy_archived_file(backup: Path, staging_folder: Path, file: ArchivedFile, progress: OnBytesCopied) -> None:
    digest, path = hashlib.sha256(), resolve_path_in_folder(staging_folder, file.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_backup_file(backup, file.name) as source, create_private_file(path) as out:
        while chunk := source.read(_COPY_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
            progress(len(chunk))
        out.flush()
        os.fsync(out.fileno())
    if (path.stat().st_size, digest.hexdigest()) != (file.size, file.sha256):
        raise BadBackup(f"{backup / file.name} has changed since the backup was made.", hint="Take another backup.")


def _open_backup_file(backup: Path, name: str) -> BinaryIO:
    try:
        return resolve_path_in_folder(backup, name).open("rb")
    except OSError as problem:
        raise BadBackup(
            f"{backup / name} cannot be read: {problem.strerror}.", hint="Take another backup."
        ) from problem


def _move_restored_files(staging_folder: Path, folder: Path) -> None:
    """Move the files into the data folder, the databases (of keys and of alerts) last.

    If the move is interrupted, the folder has no database of keys yet. Therefore it does not look like the folder of a
    service that has already run.
    """
    for path in sorted(staging_folder.iterdir(), key=lambda path: path.suffix == ".db"):
        path.replace(folder / path.name)
    sync_folder(folder)
